"""Daemons with an object store: their options, and helpers that fill it."""

from typing import Any

from harness.cluster import Cluster, Daemon
from harness.disks import found
from harness.pages import Pages
from harness.waiting import eventually
from peercached.cold.marker import Marker

POOL = "16MiB"
IN_POOL = 240  # pages of 64 KiB, at most
PAGES = 440
STORED = PAGES - IN_POOL


def options(store: str, **more: Any) -> dict[str, Any]:
    return {"pool_size": POOL, "cold_store": store, "spill_bytes_per_s": 0, **more}


def any_marker(folder: str = "", node_id: str = "a", secret: bytes = b"one secret") -> Marker:
    """Of a node alone."""
    marker = Marker(folder, node_id, "file:///store", secret)
    marker.members_know = True
    return marker


def cold_of(daemon: Daemon) -> dict[str, Any]:
    counted: dict[str, Any] = daemon.status()["cold"]
    return counted


def wait_known(daemon: Daemon, pages: int) -> None:
    eventually(lambda: cold_of(daemon)["pages"] >= pages, 30, lambda: f"{cold_of(daemon)}")


def fill_and_read(daemon: Daemon, worker: Pages, keys: list[bytes]) -> None:
    """Sets pages and reads each once, no faster than the store takes them. Each by itself, so the
    pool evicts them in this order."""

    def evicted_before_written() -> tuple[bool, int]:
        status = daemon.status()
        pool = status["pool"]
        has_room = pool["used_bytes"] < 0.92 * pool["capacity_bytes"]
        return has_room, pool["evictions"] - status["cold"]["written_pages"]

    _, begun = evicted_before_written()

    def may_go_on() -> bool:
        has_room, lead = evicted_before_written()
        return has_room or lead - begun <= -14

    for at in range(0, len(keys), 8):
        eventually(may_go_on, 30, lambda: f"{cold_of(daemon)}")
        for key in keys[at : at + 8]:
            assert all(worker.set([key])) and found(worker, [key])


def wipe(*clusters: Cluster) -> None:
    """Kills all daemons. The next cluster has the same secret, and nothing else of them."""
    for cluster in clusters:
        for daemon in cluster.daemons:
            daemon.kill()
