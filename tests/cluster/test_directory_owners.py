"""Owners that die, are cut off, or have no room, as seen by readers of other nodes' pages."""

from collections.abc import Sequence

import pytest
from harness.background import Background
from harness.cluster import Cluster
from harness.directory import final, wait_settled
from harness.fixtures import MakeCluster
from harness.netns import Network
from harness.pages import Pages, keys_of
from harness.waiting import eventually

CAPACITY = 1024
TIMEOUT_S = 2.0


def in_batches(keys: Sequence[bytes]) -> list[Sequence[bytes]]:
    return [keys[at : at + 64] for at in range(0, len(keys), 64)]


def found(pages: Pages, keys: Sequence[bytes]) -> int:
    return sum(sum(map(bool, pages.get(some))) for some in in_batches(keys))


def test_a_steady_reader_misses_nothing_when_an_owner_dies_and_comes_back(
    make_hosts: MakeCluster,
) -> None:
    """More pages than the location cache can hold, so that every round asks the owners."""
    cluster = make_hosts(4, location_cache_entries=1024, directory_copies=0, rpc_timeout_ms=20_000)
    keys = keys_of("owned", 3072)
    writer = cluster[1].attach(page_bytes=4096)
    for some in in_batches(keys):
        assert all(writer.set(some))
    reader = cluster[0].attach(page_bytes=4096, timeout_s=10.0)
    missed: list[int] = []
    lookups = cluster[0].status()["operations"]["lookups_passed_on"]
    with Background(lambda: missed.append(len(keys) - found(reader, keys))) as reading:
        reading.wait_rounds(1)
        cluster[3].kill()
        reading.wait_rounds(1)
        cluster[0].wait_members(["a", "b", "c"])
        reading.wait_rounds(1)
        cluster[3].start()
        wait_settled(cluster.daemons)
        reading.wait_rounds(1)
    assert sum(missed) == 0, missed
    reader.calls.check_none_waited()
    assert cluster[0].status()["operations"]["lookups_passed_on"] > lookups


def test_sets_succeed_without_a_dead_owner_and_it_has_them_on_return(
    make_hosts: MakeCluster,
) -> None:
    cluster = make_hosts(3)
    writer = cluster[1].attach()
    cluster[2].kill()
    keys = keys_of("set meanwhile", 64)
    assert all(writer.set(keys))
    assert cluster[0].attach().has(keys)
    cluster.start_again(cluster[2])
    eventually(lambda: all(map(final, cluster.daemons)), 20)
    assert cluster[2].attach().has(keys)


@pytest.mark.netns
def test_partitioned_owner_costs_no_misses_and_has_all_after_healing(
    network: Network, hosts: Cluster
) -> None:
    cluster = hosts
    keys, later = keys_of("before", 512), keys_of("meanwhile", 128)
    writer = cluster[1].attach(page_bytes=4096)
    for some in in_batches(keys):
        assert all(writer.set(some))
    reader = cluster[0].attach(page_bytes=4096, timeout_s=TIMEOUT_S)
    assert found(reader, keys) == 512
    network.cut("c")
    for _ in range(3):
        assert found(reader, keys) == 512, "c holds none of these pages"
    for some in in_batches(later):
        assert all(writer.set(some))
    eventually(lambda: found(reader, later) == 128, 10)
    network.heal("c")
    cluster.wait_complete()
    everything, at_c = [*keys, *later], cluster[2].attach(page_bytes=4096)
    eventually(
        lambda: found(at_c, everything) == 640,
        10,
        "c asks for what it missed: nobody waited for it, so its lease may still have counted",
    )


def test_full_table_warns_and_recovers_once_it_has_room(make_hosts: MakeCluster) -> None:
    """A node without room for all records of a holder has none of them."""
    cluster = make_hosts(2, directory_capacity=CAPACITY, directory_copies=0)
    keys = keys_of("many", 2048)
    holder, reader = cluster[1].attach(page_bytes=4096), cluster[0].attach(page_bytes=4096)
    for some in in_batches(keys):
        assert all(holder.set(some)), "a full directory is no reason not to cache"
    status = cluster[0].status()
    assert status["shard"]["entries"] <= CAPACITY
    assert "directory_full" in cluster[0].codes()
    assert not final(cluster[0]), "what is not in it may exist all the same"
    assert found(holder, keys) == 2048, "its holder finds every page"

    for some in in_batches(keys[:1536]):
        holder.client.remove(some)
    kept = keys[1536:]
    eventually(lambda: found(reader, kept) == len(kept), 60, "its records come after all")
    eventually(lambda: all(map(final, cluster.daemons)), 60)
