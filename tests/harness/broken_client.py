"""Runs tests with a copy of the client that has one deliberate mistake: they must fail.

As a script, `python broken_client.py FOLDER PYTEST-ARGUMENT...` runs pytest with the copy in
FOLDER. The daemons are processes of their own and not broken.
"""

import os
import shutil
import subprocess
import sys
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any, NamedTuple

import pytest


class Variant(NamedTuple):
    file: str
    right: str  # text that is in the file once; empty: nothing is broken
    wrong: str
    guards: list[str]  # tests, of which at least one must fail


def check(variant: Variant, room: Path, folder: Path) -> None:
    """`room`: the folder of the guards. `folder`: an empty one, for the copy."""
    _break(variant, folder)
    run = subprocess.run(
        [sys.executable, __file__, str(folder), *_arguments(variant, room)],
        capture_output=True,
        check=False,
        text=True,
        timeout=280,
    )
    _judge(variant, run.returncode, run.stdout + run.stderr)


def check_in_fork(variant: Variant, room: Path, folder: Path) -> None:
    """As `check`, without another import of the engine. The guards must not have references to the
    intact client."""
    _break(variant, folder)
    output = folder / "output"
    pid = os.fork()
    if pid == 0:
        _become_broken(folder, output, _arguments(variant, room))
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    _judge(variant, code, output.read_text())


def _become_broken(folder: Path, output: Path, arguments: list[str]) -> None:
    """Never returns: the rest of the test's process must not run twice."""
    code = 99
    try:
        log = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(log, 1)
        os.dup2(log, 2)
        sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__
        for name in list(sys.modules):
            # The compiled part is never broken, and cannot be loaded twice.
            if name.partition(".")[0] == "peercache_client" and name != "peercache_client._ipc":
                del sys.modules[name]
        sys.meta_path.insert(0, _Copy(str(folder)))
        code = int(pytest.main(arguments))
        print(end="", flush=True)
    finally:
        os._exit(code)


def _break(variant: Variant, folder: Path) -> None:
    import peercache_client

    copy = folder / "peercache_client"
    shutil.copytree(Path(peercache_client.__file__).parent, copy)
    if variant.right:
        text = (copy / variant.file).read_text()
        assert text.count(variant.right) == 1, (
            f"{variant.file} has changed: what is to be broken is not in it"
        )
        (copy / variant.file).write_text(text.replace(variant.right, variant.wrong))


def _arguments(variant: Variant, room: Path) -> list[str]:
    guards = (str(room / guard) for guard in variant.guards)
    return ["-x", "-p", "no:cacheprovider", "--timeout", "240", *guards]


def _judge(variant: Variant, code: int, output: str) -> None:
    assert "passed" in output or "failed" in output, output
    assert code == (1 if variant.right else 0), output[-3000:]
    if variant.right:
        assert "AssertionError" in output or "assert " in output, output[-3000:]


class _Copy:
    """Comes before the finder of the editable installation, which knows the intact client."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name.partition(".")[0] != "peercache_client":
            return None
        return PathFinder.find_spec(name, path or [self._folder], target)


if __name__ == "__main__":
    sys.meta_path.insert(0, _Copy(sys.argv[1]))
    import peercache_client

    assert (peercache_client.__file__ or "").startswith(sys.argv[1])
    sys.exit(pytest.main(sys.argv[2:]))
