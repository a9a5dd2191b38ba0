"""A worker that forks, for chaos.py to kill during a call: `python -m soak.visitor SOCKET MEMORY`.

Parent and child go on with one client each; the child's is a copy by fork(). Prints a line after
each round. Exits with 1 if a page is not what it was set to.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from harness import versions
from harness.versions import Versions

KEYS = 32


def main(socket_path: str, memory: str) -> int:
    """`memory`: Versions or DeviceVersions."""
    kind: type[Versions] = getattr(versions, memory)
    pages = kind(Path(socket_path), room_pages=1, namespace="visitors", timeout_s=1.0)
    number = os.getpid() if os.fork() else os.getppid() + (1 << 32)
    pages.make_room(KEYS)  # not shared by the two
    keys = [f"{number}/{place}".encode() for place in range(KEYS)]
    while True:
        pages.set(keys, number)
        if any(version not in (None, number) for version in pages.get(keys)):
            return 1
        print("round", flush=True)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
