"""How much memory this process may use. Beyond it the kernel kills the process silently."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from peercached.config.schema import Config
from peercached.config.values import format_size

# docs/performance.md has 79 MB of an idle daemon. The rest is for calls under way.
_BESIDES_BYTES = 128 << 20
_DISK_BYTES = 64 << 20

_CGROUP = Path("/sys/fs/cgroup")
_OWN_GROUPS = Path("/proc/self/cgroup")
# Above memory.high the kernel does not kill: it slows the process down to a standstill.
_LIMITS = ("memory.max", "memory.high", "memory.limit_in_bytes")
_USED = ("memory.current", "memory.usage_in_bytes")
_OF_FILES = ("active_file", "inactive_file")


def besides_bytes(config: Config) -> int:
    """The memory that a daemon needs besides its pool. The directory needs more, as it fills."""
    return _BESIDES_BYTES + (_DISK_BYTES if config.disk_enabled else 0)


def memory_limit_bytes(*, huge_pages: bool) -> int | None:
    """How large a pool may be: the smallest of the host's memory and our cgroups' limits; None if
    unknown. A cgroup counts reserved huge pages apart from its other memory, so they have no part
    in its limit."""
    limits = []
    with contextlib.suppress(OSError, ValueError):
        limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    if not huge_pages:
        limits.extend(limit for limit, _ in _cgroups())
    return min(limits, default=None)


def available_bytes(meminfo: Path = Path("/proc/meminfo")) -> int | None:
    """The memory that this process can still use without swapping, on its host and in its cgroups;
    None if unknown."""
    left = [limit - used for limit, used in _cgroups()]
    if available := _table(meminfo).get("MemAvailable:"):
        left.append(int(available) * 1024)
    return min(left, default=None)


def too_little_available(config: Config, bytes_available: int | None) -> str:
    """Why the pool does not fit the available memory, with the remedy; empty if it does. Pages of
    an existing pool_file are in memory already, and so are reserved huge pages."""
    in_memory = config.huge_pages or (config.pool_file and Path(config.pool_file).exists())
    if in_memory or bytes_available is None or config.pool_size <= bytes_available:
        return ""
    return (
        f"pool_size = {format_size(config.pool_size)}, but only {bytes_available >> 20} MiB of "
        "memory are available now (MemAvailable in /proc/meminfo, or the rest of the limit of the "
        "container or unit): set pool_size below that and leave room for the engines, or stop the "
        "processes that use the memory"
    )


def _cgroups() -> Iterator[tuple[int, int]]:
    """The limits of our cgroups, each with the bytes in use there that are no cache of files."""
    try:
        lines = _OWN_GROUPS.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, group = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        top = _CGROUP / "memory" if controllers else _CGROUP
        # In a container the path may be the host's and not exist. Then only the top folder is ours.
        folder = top / group.lstrip("/")
        for place in (folder, *folder.parents):
            stat = _table(place / "memory.stat")
            cache = sum(int(stat.get(f"total_{n}", stat.get(n, 0))) for n in _OF_FILES)
            used = sum(_number(place / name) for name in _USED)
            for name in _LIMITS:
                if limit := _number(place / name):
                    yield limit, max(used - cache, 0)
            if place == top:
                break


def _number(file: Path) -> int:
    try:
        return int(file.read_text())
    except (OSError, ValueError):  # it does not exist, or holds "max"
        return 0


def _table(file: Path) -> dict[str, str]:
    try:
        return dict(line.split()[:2] for line in file.read_text().splitlines())
    except OSError:
        return {}
