"""How much memory this process may use. Beyond it the kernel kills the process silently."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")


def memory_limit_bytes() -> int | None:
    """The smallest of the host's memory and our cgroups' limits; None if unknown."""
    limits = []
    with contextlib.suppress(OSError, ValueError):
        limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    limits.extend(_cgroup_limits())
    return min(limits, default=None)


def _cgroup_limits() -> list[int]:
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    limits = []
    for line in lines:
        _, controllers, group = line.split(":", 2)
        if controllers == "":
            top, name = _CGROUP, "memory.max"
        elif "memory" in controllers.split(","):
            top, name = _CGROUP / "memory", "memory.limit_in_bytes"
        else:
            continue
        # In a container the path may be the host's and not exist. Then only the top folder is ours.
        folder = top / group.lstrip("/")
        for place in (folder, *folder.parents):
            limits.extend(_read_limit(place / name))
            if place == top:
                break
    return limits


def _read_limit(file: Path) -> list[int]:
    try:
        return [int(file.read_text())]
    except (OSError, ValueError):  # it does not exist, or holds "max"
        return []
