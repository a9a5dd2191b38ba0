"""Pool files for daemons, in a tmpfs."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

TMPFS = Path("/dev/shm")


class PoolFiles:
    """Paths for pool files, one for each node."""

    def __init__(self) -> None:
        self.prefix = f"peercached-test-{os.getpid()}-{secrets.token_hex(4)}"

    def __getitem__(self, node: int) -> Path:
        return TMPFS / f"{self.prefix}-{node}"

    def options(self, size: int) -> list[dict[str, str]]:
        return [{"pool-file": str(self[node])} for node in range(size)]


@contextmanager
def some_pool_files() -> Iterator[PoolFiles]:
    """Deletes the files after the block."""
    files = PoolFiles()
    try:
        yield files
    finally:
        for path in TMPFS.glob(f"{files.prefix}-*"):
            with suppress(OSError):
                path.unlink()
