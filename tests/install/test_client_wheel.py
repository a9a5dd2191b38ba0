"""The client's wheel: the client of the daemon's wheel and nothing else. It works in a bare
environment, as an engine's image would install it."""

from __future__ import annotations

import sys
import tempfile
import zipfile
from collections.abc import Iterator
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest
from harness.environments import environment, run, serves

from peercached import __version__

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

DESCRIPTION = f"peercache_client-{__version__}.dist-info"
ENTRY_POINTS = """
from importlib.metadata import distribution
for each in distribution("peercache-client").entry_points:
    print(each.group, each.name, each.load().__module__)
"""
# Prints each part of the package that does not load by itself, and the module that it lacks.
PARTS = """
import importlib
from pathlib import Path
import peercache_client
root = Path(peercache_client.__file__).parent
for file in sorted(root.rglob("*.py")):
    module = ".".join(file.relative_to(root.parent).with_suffix("").parts)
    try:
        importlib.import_module(module.removesuffix(".__init__"))
    except ModuleNotFoundError as error:
        print(module.split(".")[1], error.name.split(".")[0])
"""


@pytest.fixture(scope="module")
def folder(python: str) -> Iterator[Path]:
    del python  # one folder for each
    with tempfile.TemporaryDirectory(prefix="pc-client-") as name:
        yield Path(name)


@pytest.fixture(scope="module")
def engine(python: str, folder: Path, client_wheel: Path) -> Path:
    """The bin/ of an environment that has the client's wheel and nothing else, without an index."""
    return environment(python, folder / "engine", client_wheel, "--no-deps", "--no-index")


def contents(wheel: Path, *folders: str) -> dict[str, bytes]:
    """The files below these folders, or all."""
    with zipfile.ZipFile(wheel) as archive:
        return {
            name: archive.read(name)
            for name in archive.namelist()
            if not folders or name.startswith(folders)
        }


def metadata(wheel: Path) -> Message:
    (text,) = (
        text for name, text in contents(wheel).items() if name.endswith(".dist-info/METADATA")
    )
    return Parser().parsestr(text.decode())


def test_it_has_the_clients_files_of_the_daemons_wheel_alone(
    wheel: Path, client_wheel: Path
) -> None:
    files = contents(client_wheel)
    described = {name: text for name, text in files.items() if name.startswith(f"{DESCRIPTION}/")}
    assert {name.partition("/")[2] for name in described} == {
        "METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE",
    }  # fmt: skip
    client = {name: text for name, text in files.items() if name not in described}
    assert client == contents(wheel, "peercache_client/")
    assert "peercache_client/py.typed" in client


def test_it_declares_no_dependency_and_else_what_the_daemons_wheel_does(
    wheel: Path, client_wheel: Path
) -> None:
    daemon, client = metadata(wheel), metadata(client_wheel)
    assert client["Name"] == "peercache-client"
    assert client.get_all("Requires-Dist") is None
    assert client.get_all("Provides-Extra") is None
    for field in ("Version", "Requires-Python", "License-Expression", "License-File"):
        assert client[field] == daemon[field], field
        assert client[field], field
    assert "from peercache_client import Client" in str(client.get_payload())


def test_a_bare_environment_has_all_that_it_needs(engine: Path) -> None:
    assert "No broken requirements" in run(engine / "python", "-m", "pip", "check")
    listed = run(engine / "python", "-m", "pip", "list", "--format=freeze").split()
    assert {line.partition("==")[0] for line in listed} - {"pip", "setuptools"} == {
        "peercache-client"
    }
    assert sorted(path.name for path in engine.glob("peer*")) == []


def test_its_worker_sets_and_gets_a_page_of_a_daemon_of_another_environment(
    engine: Path, folder: Path
) -> None:
    serves(Path(sys.executable).parent, engine, folder)


def test_sglang_finds_its_plugin(engine: Path) -> None:
    found = run(engine / "python", "-c", ENTRY_POINTS)
    assert found == "sglang.srt.plugins peercache peercache_client.sglang_plugin\n"


def test_each_part_needs_its_own_engine_at_most(engine: Path) -> None:
    lacking = {tuple(line.split()) for line in run(engine / "python", "-c", PARTS).splitlines()}
    assert lacking == {("lmcache", "lmcache"), ("sglang", "sglang"), ("vllm", "vllm")}
