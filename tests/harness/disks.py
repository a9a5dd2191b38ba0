"""Daemons with disk tiers: their options, and helpers that wait for the disk."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness.cluster import Daemon
from harness.pages import Pages
from harness.waiting import eventually


def disk_options(folder: Path, names: str, **more: str) -> list[dict[str, str | int]]:
    """The options of each daemon, for `make_cluster(each=...)`. Without spill, so that pages which
    leave the pool are on that disk only."""
    return [
        {
            "spill_bytes_per_s": 0,
            "disk_enabled": True,
            "disk_path": str(folder / f"{name}.disk"),
            "disk_size": "256MiB",
            **more,
        }
        for name in names
    ]


def disk_of(daemon: Daemon) -> dict[str, Any]:
    disk: dict[str, Any] = daemon.status()["disk"]
    return disk


def wait_written(daemon: Daemon) -> None:
    eventually(lambda: disk_of(daemon)["queued_pages"] == 0, 60, "the disk to take what was set")


def fill(daemon: Daemon, pages: Pages, keys: Sequence[bytes], at_once: int = 16) -> None:
    """Sets pages no faster than the disk takes them, so that it skips none."""
    for at in range(0, len(keys), at_once):
        assert all(pages.set(keys[at : at + at_once]))
        wait_written(daemon)
    assert disk_of(daemon)["skipped_full"] == 0


def found(pages: Pages, keys: Sequence[bytes], at_once: int = 16) -> int:
    """The number of hits, after comparing the bytes of each."""
    return sum(
        sum(map(bool, pages.get(keys[at : at + at_once]))) for at in range(0, len(keys), at_once)
    )
