"""Runs pytest with a broken copy of the client: `python broken.py FOLDER PYTEST-ARGUMENT...`.

FOLDER has the copy. The daemons are processes of their own and not broken.
"""

import sys
from importlib.machinery import ModuleSpec, PathFinder
from typing import Any

import pytest


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
