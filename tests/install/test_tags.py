"""Each wheel in dist/ needs no more than its name says. Nothing of the wheels runs here: their
modules are read, so those of another architecture are checked, too."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from harness.pythons import ROOT, STABLE_ABI_FROM, pythons, version_of

from peercached import __version__

pytestmark = [pytest.mark.slow]

GLIBC = (2, 28)
MACHINES = {"x86_64": "Advanced Micro Devices X86-64", "aarch64": "AArch64"}
LIBRARIES = re.compile(r"(libc|libm|libdl|libpthread|librt)\.so\.\d|ld-linux-[a-z0-9_-]+\.so\.\d")
MODULES = {"peercached": ["_ipc", "_native"], "peercache_client": ["_ipc"]}
WHEELS = sorted(
    wheel for name in MODULES for wheel in (ROOT / "dist").glob(f"{name}-{__version__}-*.whl")
)


@pytest.fixture(params=WHEELS, ids=lambda path: path.name)
def built(request: pytest.FixtureRequest) -> Path:
    return Path(request.param)


@pytest.fixture
def modules(built: Path, tmp_path: Path) -> list[Path]:
    with zipfile.ZipFile(built) as archive:
        archive.extractall(tmp_path)
    found = sorted(tmp_path.rglob("*.so*"))
    assert [path.name.partition(".")[0] for path in found] == MODULES[built.name.partition("-")[0]]
    return found


def architecture(wheel: Path) -> str:
    _, _, platform = wheel.stem.partition("manylinux_2_28_")
    assert platform in MACHINES, f"{wheel.name} has no tag of this project"
    return platform


def python_of(wheel: Path) -> tuple[int, int]:
    found = re.search(r"-cp3(\d+)-", wheel.name)
    assert found
    return 3, int(found[1])


def readelf(option: str, module: Path) -> str:
    done = subprocess.run(
        ["readelf", option, "-W", str(module)], capture_output=True, text=True, check=True
    )
    return done.stdout


def symbols(module: Path) -> Iterator[tuple[str, str, bool]]:
    """Name, version and whether it is defined, of each dynamic symbol."""
    for line in readelf("--dyn-syms", module).splitlines():
        words = line.split()
        if len(words) >= 8 and words[0].rstrip(":").isdigit():
            name, _, version = words[7].partition("@")
            yield name, version.lstrip("@"), words[6] != "UND"


@cache
def symbols_of_python(version: tuple[int, int]) -> frozenset[str]:
    """All that a Python of this machine offers to modules; empty if there is none of the version.
    They depend on the version only, not on the architecture."""
    for python in {*pythons(), sys.executable}:
        if version_of(python) == version:
            script = """
import ctypes, sys
from pathlib import Path
for line in Path("/proc/self/maps").read_text().splitlines():
    if "libpython" in line:
        print(line.split()[-1])
print(Path(sys.executable).resolve())
"""
            said = subprocess.run(
                [python, "-c", script], capture_output=True, text=True, check=True
            )
            return frozenset(
                name
                for path in set(said.stdout.split())
                for name, _, defined in symbols(Path(path))
                if defined
            )
    return frozenset()


def test_tags_inside_and_outside_agree(built: Path) -> None:
    archive = zipfile.ZipFile(built)
    (described,) = (name for name in archive.namelist() if name.endswith(".dist-info/WHEEL"))
    tags = re.findall(r"^Tag: (.+)$", archive.read(described).decode(), re.MULTILINE)
    assert tags == [built.stem.split("-", 2)[2]]


def test_modules_are_of_the_architecture_in_the_tag(built: Path, modules: list[Path]) -> None:
    stable = "abi3" in built.name
    tag = "cp3{1}".format(*python_of(built)).removeprefix("cp")
    suffix = "abi3" if stable else f"cpython-{tag}-{architecture(built)}-linux-gnu"
    for module in modules:
        assert MACHINES[architecture(built)] in readelf("-h", module)
        assert module.name.partition(".")[2] == f"{suffix}.so"


def test_modules_need_glibc_2_28_and_no_other_library(modules: list[Path]) -> None:
    for module in modules:
        needed = re.findall(r"\(NEEDED\).*\[(.+)\]", readelf("-d", module))
        assert needed
        assert [name for name in needed if not LIBRARIES.fullmatch(name)] == []
        versions = {version for _, version, _ in symbols(module) if version}
        assert versions
        for version in versions:
            family, _, number = version.partition("_")
            assert family == "GLIBC", f"{module.name} needs {version}"
            assert tuple(map(int, number.split("."))) <= GLIBC, f"{module.name} needs {version}"


def test_modules_export_their_init_function_only(modules: list[Path]) -> None:
    """Another OpenSSL in the process must not see this one, and this one must not see another."""
    for module in modules:
        exported = {name for name, _, defined in symbols(module) if defined}
        assert exported == {f"PyInit_{module.name.partition('.')[0]}"}


def test_modules_import_only_what_their_python_exports(built: Path, modules: list[Path]) -> None:
    offered = symbols_of_python(python_of(built))
    for module in modules:
        imported = {name for name, version, defined in symbols(module) if not (version or defined)}
        imported -= {""}
        foreign = {name for name in imported if not name.startswith(("Py", "_Py"))}
        assert foreign == set(), f"{module.name} needs symbols of no library that it names"
        if offered:
            assert imported - offered == set()
    if not offered:
        pytest.skip("no Python {}.{} on this machine: its symbols were not compared".format(
            *python_of(built)))  # fmt: skip


def test_stable_abi_wheels_use_the_stable_abi_only(built: Path) -> None:
    if python_of(built) < STABLE_ABI_FROM:
        pytest.skip("this wheel is for one Python")
    pytest.importorskip("abi3audit", reason="`make test-install` installs abi3audit")
    done = subprocess.run(
        [sys.executable, "-m", "abi3audit", "--strict", "--report", str(built)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_modules_are_stripped_and_their_symbols_are_beside_the_wheel(
    built: Path, modules: list[Path]
) -> None:
    # The client's module is the daemon's wheel's one, and so are its symbols.
    daemons = built.stem.replace("peercache_client-", "peercached-")
    with tarfile.open(built.with_name(f"{daemons}-symbols.tar.xz")) as archive:
        names = {Path(name).name for name in archive.getnames()}
    for module in modules:
        sections = readelf("-S", module)
        assert ".symtab" not in sections
        assert ".debug_info" not in sections
        assert ".gnu_debuglink" in sections
        assert f"{module.name}.debug" in names
