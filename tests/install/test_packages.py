"""The packages, installed by themselves, as a user installs them."""

from __future__ import annotations

import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.environments import environment, run, serves
from harness.pythons import ROOT, STABLE_ABI_FROM, version_of

from peercached import __version__

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def folder(python: str) -> Iterator[Path]:
    del python  # one folder for each
    with tempfile.TemporaryDirectory(prefix="pc-install-") as name:
        yield Path(name)


@pytest.fixture(scope="module")
def installed(python: str, folder: Path, wheel: Path) -> Path:
    return environment(python, folder / "daemon", wheel)


def lowest(requirement: str) -> str:
    """The requirement with the oldest version that it allows."""
    name, _, versions = requirement.partition(">=")
    oldest, _, marker = versions.partition(";")
    return f"{name}=={oldest.partition(',')[0]}" + (f";{marker}" if marker else "")


def test_wheel_contains_operator_files_and_no_shared_libraries(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    for wanted in ("deploy/systemd/peercached.service", "docs/operations.md"):
        assert any(name.endswith(f"share/peercached/{wanted}") for name in names), wanted
    # The modules contain the others. libibverbs must be the system's.
    assert not any(name.startswith("peercached.libs/") for name in names)
    assert not any(name.startswith(("tests/", "demo/")) for name in names)


def test_the_source_distribution_has_every_tracked_file(sdist: Path) -> None:
    tracked = run("git", "-C", ROOT, "ls-files").split("\n")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    missing = {name for name in tracked if name and not name.startswith(".ci/")} - names
    assert not missing
    assert not {name for name in names if name.startswith((".venv", "build/", "dist/"))}


def test_the_commands_run(installed: Path) -> None:
    assert "SGLang" in run(installed / "peercached", "--help")
    assert run(installed / "peercached", "--version") == f"peercached {__version__}\n"
    assert run(installed / "peercachectl", "--version") == f"peercachectl {__version__}\n"
    assert run(installed / "peercache-bench", "--version") == f"peercache-bench {__version__}\n"
    script = (
        "from peercached.observe.build_info import build_info; "
        "print(build_info()['native_version'])"
    )
    assert run(installed / "python", "-c", script) == f"{__version__}\n"


def test_a_daemon_serves_the_client_of_another_environment(
    python: str, installed: Path, folder: Path, client_wheel: Path
) -> None:
    engine = environment(python, folder / "engine", client_wheel, "--no-deps", "--no-index")
    serves(installed, engine, folder)


def test_a_daemon_runs_with_the_oldest_versions_of_what_it_needs(
    python: str, folder: Path, wheel: Path
) -> None:
    """A user who has pinned one of them is not given a newer one."""
    if version_of(python) >= STABLE_ABI_FROM:
        pytest.skip("these are older than that Python")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    constraints = folder / "oldest.txt"
    constraints.write_text("\n".join(lowest(line) for line in project["dependencies"]))
    oldest = environment(python, folder / "oldest", wheel, "-c", constraints)
    serves(oldest, oldest, folder)
