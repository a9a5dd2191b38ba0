"""The hit rate of a steady reader while nodes come and go: surviving pages are always found.

Readers have small location caches and no copies, so every round asks the owners.
"""

from collections.abc import Callable

import pytest
from harness.cluster import Daemon
from harness.directory import wait_settled
from harness.fixtures import MakeCluster
from harness.netns import Network
from harness.pages import keys_of
from harness.steady_reader import SteadyReader

PAGE_BYTES = 4096
SMALL_CACHE = {"location_cache_entries": 1024, "directory_copies": 0}


def set_at(daemon: Daemon, count: int) -> list[bytes]:
    """Sets pages at this node and returns their keys."""
    keys = keys_of(f"held by {daemon.node_id}", count)
    pages = daemon.attach(page_bytes=PAGE_BYTES)
    for at in range(0, count, 64):
        assert all(pages.set(keys[at : at + 64]))
    return keys


def lookups(daemon: Daemon) -> int:
    count: int = daemon.status()["operations"]["lookups_asked"]
    return count


# --- unplanned --------------------------------------------------------------------------------


@pytest.mark.parametrize("end, back", [("kill", "start"), ("freeze", "thaw")])
def test_survivors_pages_stay_hits_while_the_head_goes_and_returns(
    make_hosts: MakeCluster, end: str, back: str
) -> None:
    cluster = make_hosts(4, **SMALL_CACHE)
    keys = set_at(cluster[2], 1536) + set_at(cluster[3], 1536)
    reader = cluster[1].attach(page_bytes=PAGE_BYTES, timeout_s=10.0)
    with SteadyReader(reader, keys) as reading:
        reading.wait_rounds(1)
        asked, read = lookups(cluster[1]), len(reading.timeline)
        getattr(cluster[0], end)()
        cluster[1].wait_members(["b", "c", "d"])
        reading.wait_rounds(2)
        read = len(reading.timeline) - read
        assert lookups(cluster[1]) > asked + read // 4, "the owners are asked"
        getattr(cluster[0], back)()
        wait_settled(cluster.daemons)
        reading.check_whole("the head came back")


@pytest.mark.netns
def test_others_pages_stay_hits_through_a_partition_and_its_healing(
    network: Network, on_hosts: MakeCluster
) -> None:
    cluster = on_hosts(**SMALL_CACHE)
    keys = set_at(cluster[1], 4096)
    reader = cluster[0].attach(page_bytes=PAGE_BYTES, timeout_s=10.0)
    with SteadyReader(reader, keys) as reading:
        reading.wait_rounds(1)
        asked = lookups(cluster[0])
        network.cut("c")
        cluster[0].wait_members(["a", "b"])
        reading.wait_rounds(2)
        assert lookups(cluster[0]) > asked, "the owners are asked"
        network.heal("c")
        wait_settled(cluster.daemons)
        reading.check_whole("the host came back")


def test_all_pages_are_found_again_after_new_masters_take_over(make_hosts: MakeCluster) -> None:
    """Both dying nodes own every sixth page."""
    cluster = make_hosts(4, start=False, max_masters=2, **SMALL_CACHE)
    for daemon in cluster.daemons:
        daemon.heads = [cluster[0].address, cluster[1].address]
    cluster.start()
    keys = set_at(cluster[2], 3072)
    reader = cluster[3].attach(page_bytes=PAGE_BYTES, timeout_s=10.0)
    with SteadyReader(reader, keys) as reading:
        reading.wait_rounds(1)
        for daemon in cluster.daemons[:2]:
            daemon.kill()
        wait_settled(cluster.daemons[2:], within_s=15)
        reading.forget()
        reading.check_whole("others have taken over", rounds=2)
        for daemon in cluster.daemons[:2]:
            daemon.start()
        wait_settled(cluster.daemons)
        reading.check_whole("the masters came back")


# --- planned ----------------------------------------------------------------------------------


def test_join_drain_and_leave_cost_steady_readers_no_page(make_hosts: MakeCluster) -> None:
    cluster = make_hosts(4, start=False, stop_drain_s=20, rpc_timeout_ms=20_000, **SMALL_CACHE)
    a, b, c, newcomer = cluster.daemons
    for daemon in (a, b, c):
        daemon.start()
    cluster.wait_complete()
    keys = set_at(b, 1536) + set_at(c, 1536)
    # A long timeout, so that a wait for another node shows as a stall, not as a miss.
    readers = [daemon.attach(page_bytes=PAGE_BYTES, timeout_s=10.0) for daemon in (a, b)]
    with SteadyReader(readers[0], keys) as at_a, SteadyReader(readers[1], keys) as at_b:

        def whole(what: str, change: Callable[[], object]) -> None:
            at_a.wait_rounds(1)
            change()
            wait_settled(cluster.daemons)
            for reading in (at_a, at_b):
                reading.check_whole(what, rounds=2)

        asked, read = lookups(a), len(at_a.timeline)
        whole("a new node joins", newcomer.start)
        whole("a holder drains and leaves", lambda: drain(c))
        whole("the new node, which took pages, is stopped", newcomer.stop)
        assert lookups(a) > asked + (len(at_a.timeline) - read) // 4, "the owners are asked"
    for reader in readers:
        reader.calls.check_none_waited()


def drain(daemon: Daemon) -> None:
    assert daemon.drain(stay=False)["complete"]
    daemon.kill()  # nothing depends on it any more
