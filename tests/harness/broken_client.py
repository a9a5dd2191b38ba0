"""Runs tests with a copy of the client that has one deliberate mistake: they must fail.

As a script, `python broken_client.py FOLDER PYTEST-ARGUMENT...` runs pytest with the copy in
FOLDER. The daemons are processes of their own and not broken.
"""

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
    import peercache_client

    copy = folder / "peercache_client"
    shutil.copytree(Path(peercache_client.__file__).parent, copy)
    if variant.right:
        text = (copy / variant.file).read_text()
        assert text.count(variant.right) == 1, (
            f"{variant.file} has changed: what is to be broken is not in it"
        )
        (copy / variant.file).write_text(text.replace(variant.right, variant.wrong))
    run = subprocess.run(
        [
            *(sys.executable, __file__, str(folder)),
            *("-x", "-p", "no:cacheprovider", "--timeout", "240"),
            *(str(room / guard) for guard in variant.guards),
        ],
        capture_output=True,
        check=False,
        text=True,
        timeout=280,
    )
    assert "passed" in run.stdout or "failed" in run.stdout, run.stdout + run.stderr
    assert run.returncode == (1 if variant.right else 0), run.stdout[-3000:]
    if variant.right:
        assert "AssertionError" in run.stdout or "assert " in run.stdout, run.stdout[-3000:]


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
