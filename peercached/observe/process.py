"""This process as the kernel shows it in /proc, and the machine and packages that it runs on."""

from __future__ import annotations

import contextlib
import os
import platform
import resource
from collections import defaultdict
from pathlib import Path
from typing import Any

from peercached.observe.build_info import build_info, installed_packages

_PAGE_BYTES = resource.getpagesize()


def process_document() -> dict[str, Any]:
    """The fields of admin/process.py, but for the node id. Reads a file for each thread, which
    takes milliseconds where there are hundreds."""
    return {
        "pid": os.getpid(),
        "resident_bytes": int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE_BYTES,
        "open_files": len(list(Path("/proc/self/fd").iterdir())),
        "open_files_max": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        "threads": _threads(),
        "environment": _environment(),
    }


def _threads() -> list[dict[str, Any]]:
    count: dict[str, int] = defaultdict(int)
    cpu_ns: dict[str, int] = defaultdict(int)
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # it has ended meanwhile
            name = (task / "comm").read_text().rstrip("\n")
            cpu_ns[name] += int((task / "schedstat").read_text().split()[0])
            count[name] += 1
    return [
        {"name": name, "threads": count[name], "cpu_s": cpu_ns[name] / 1e9}
        for name in sorted(count, key=lambda name: -cpu_ns[name])
    ]


def _environment() -> dict[str, Any]:
    return {
        "python": platform.python_version(),
        "kernel": f"{platform.system()} {platform.release()}",
        "machine": platform.machine(),
        "processors": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PHYS_PAGES") * _PAGE_BYTES,
        "packages": installed_packages(),
        "build": build_info(),
    }
