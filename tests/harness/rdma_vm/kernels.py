"""The cache of kernels. One process prepares each kernel once, and none is visible half made."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path


def cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "peercached" / "rdma-vm"


def prepared(name: str, prepare: Callable[[Path, Path], None]) -> Path:
    """The folder `name` of the cache, after `prepare(work, result)` has filled it if need be.

    `work` is an empty folder to build in, which is removed; `result` becomes the folder. Other
    processes wait meanwhile.
    """
    cache = cache_folder()
    cache.mkdir(parents=True, exist_ok=True)
    folder = cache / name
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            with tempfile.TemporaryDirectory(prefix="build-", dir=cache) as made:
                work, result = Path(made, "work"), Path(made, "result")
                work.mkdir()
                result.mkdir()
                prepare(work, result)
                shutil.move(result, folder)
    return folder
