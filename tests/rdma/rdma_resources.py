"""Compares the kernel's count of RDMA objects in use with the daemons' own counts.

It counts by device, because each device belongs to one daemon. Counting by process fails: the
kernel names the thread that made an object, and nobody once that thread has ended.
"""

import json
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from harness.cluster import Daemon
from harness.waiting import eventually

# A channel's scratch memory, with the page in which it may begin.
_PINNED_PER_CHANNEL_BYTES = 16 << 10
_QUEUE_PAIRS_OF_THE_KERNEL = 1  # per device, for management packets


@dataclass(frozen=True)
class Holdings:
    """RDMA objects of one daemon, without those of its channels, which come and go."""

    queue_pairs: int
    completion_queues: int
    memory_regions: int
    protection_domains: int


def in_use(devices: set[str]) -> Counter[str]:
    """Counts of qp, cq, mr, pd and so on, of all processes and of the kernel itself."""
    shown = subprocess.run(
        ["rdma", "-j", "resource", "show"], capture_output=True, text=True, check=True
    )
    count: Counter[str] = Counter()
    for row in json.loads(shown.stdout):
        if row["ifname"] in devices:
            count.update({kind: number for kind, number in row.items() if isinstance(number, int)})
    return count


def channels_of(daemon: Daemon) -> tuple[int, int]:
    """(channels to peers, channels from peers), as the daemon counts them."""
    return _channels(daemon.status()["transport"]["rails"])


def _channels(rails: list[dict[str, Any]]) -> tuple[int, int]:
    return sum(rail["channels"] for rail in rails), sum(rail["responders"] for rail in rails)


def holdings(daemon: Daemon) -> Holdings:
    """Inconsistent while channels are being made, because it reads two counts."""
    rails = daemon.status()["transport"]["rails"]
    channels, responders = _channels(rails)
    count = in_use({rail["device"] for rail in rails})
    return Holdings(
        count["qp"] - channels - responders - len(rails) * _QUEUE_PAIRS_OF_THE_KERNEL,
        count["cq"] - channels,
        count["mr"] - channels,
        count["pd"],
    )


def pinned_bytes(daemon: Daemon) -> int:
    """The daemon's locked memory, its channels' scratch memory included."""
    for line in Path(f"/proc/{daemon.pid}/status").read_text().splitlines():
        if line.startswith("VmPin:"):
            return int(line.split()[1]) * 1024
    raise LookupError("the kernel does not tell VmPin")


def _knows_all_queue_pairs(daemon: Daemon) -> bool:
    return holdings(daemon).queue_pairs == 0


def _holds(daemon: Daemon, held: Holdings) -> bool:
    return holdings(daemon) == held


@contextmanager
def no_leaks(*daemons: Daemon) -> Iterator[None]:
    """Fails unless each daemon holds as much after the block as before, even after a restart, and
    its channels are within bounds. The same workers must be attached at the end."""
    for daemon in daemons:
        eventually(
            partial(_knows_all_queue_pairs, daemon),
            30,
            f"every queue pair of {daemon.node_id} is a channel that it knows of",
        )
    before = [(holdings(daemon), pinned_bytes(daemon)) for daemon in daemons]
    yield
    for daemon, (held, pinned) in zip(daemons, before, strict=True):
        with suppress(AssertionError):
            eventually(partial(_holds, daemon, held), 30)
        now = holdings(daemon)
        assert now == held, f"daemon {daemon.node_id} has leaked: {now} after {held}"
        most = int(daemon.options.get("max-channels-per-peer", 8)) * len(
            daemon.status()["transport"]["rails"]
        )
        channels, responders = channels_of(daemon)
        assert channels <= most * len(daemons)
        assert responders <= most * len(daemons)
        slack = _PINNED_PER_CHANNEL_BYTES * most * len(daemons)
        assert abs(pinned_bytes(daemon) - pinned) <= slack
