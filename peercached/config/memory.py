"""How much memory this process may use: beyond it the kernel kills without a word."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")


def memory_limit_bytes() -> int | None:
    """The least of the host's memory and the limits of our cgroups. None if nothing tells."""
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
        # In a container the group's path may be the host's: then only the top is ours.
        folder = top / group.lstrip("/")
        for place in (folder, *folder.parents):
            limits.extend(_read_limit(place / name))
            if place == top:
                break
    return limits


def _read_limit(file: Path) -> list[int]:
    try:
        return [int(file.read_text())]
    except (OSError, ValueError):  # not there, or "max"
        return []
