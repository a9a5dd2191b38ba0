"""Clusters with full nodes that give pages to the others."""

from collections.abc import Sequence
from time import sleep

from harness.cluster import Daemon
from harness.pages import Pages
from harness.waiting import eventually

POOL = 32 << 20
PAGE = 64 << 10
BUDGET = 1 << 30
BATCH = 2  # pages
EVICTED_AT_ONCE = 12  # pages between the pool's two marks


def spilled(daemon: Daemon) -> dict[str, int]:
    found: dict[str, int] = daemon.status()["spill"]
    return found


def set_slowly(daemon: Daemon, pages: Pages, keys: Sequence[bytes]) -> None:
    """Sets no batch before the pool has enough pages that others have, too."""
    number_set = 0

    def is_ready() -> bool:
        status = daemon.status()
        pool = status["pool"]
        only_here = number_set - int(status["spill"]["pages"])
        is_full = pool["used_bytes"] > 0.975 * pool["capacity_bytes"]
        return not is_full or only_here <= pool["keys"] - BATCH - EVICTED_AT_ONCE

    for number_set in range(0, len(keys), BATCH):
        eventually(is_ready, 60)
        assert all(pages.set(keys[number_set : number_set + BATCH]))


def at_rest(daemon: Daemon) -> bool:
    """Whether no page has moved for longer than copies stay."""
    before = spilled(daemon)
    sleep(1.0)
    return spilled(daemon) == before
