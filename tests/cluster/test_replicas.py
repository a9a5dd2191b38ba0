"""Pages that workers often read from another node are kept at theirs, too."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
from harness.cluster import Cluster, Daemon
from harness.fixtures import MakeCluster
from harness.netns import Network
from harness.pages import Pages, keys_of
from harness.versions import Versions
from harness.waiting import eventually

from peercache_client import Status

PAGE = 64 << 10
SMALL_PAGE = 4096  # so few bytes at once never look like a crowd, however slow they are
PAGES = 64
READS = 3  # native/engine/handover/hot_reads.h
LARGE_PAGE = 512 << 10  # so many of them are read in slices, whatever is known of the holder
SLOW_BITS_PER_S = 200_000_000


def replicas(daemon: Daemon) -> int:
    return int(daemon.status()["pool"]["replica_keys"])


def test_hot_pages_outlive_their_holder_at_each_node_that_reads_them_often(
    make_cluster: MakeCluster,
) -> None:
    """The readers compare every byte."""
    cluster = make_cluster(4, replica_share=0.1)
    keys = keys_of("hot", PAGES)
    assert all(cluster[3].attach(page_bytes=SMALL_PAGE).set(keys))
    readers = [daemon.attach(page_bytes=SMALL_PAGE) for daemon in cluster.daemons[:3]]
    for pages in readers[:2]:
        for _ in range(READS):
            assert pages.has(keys)
    assert readers[2].has(keys)
    eventually(lambda: [replicas(daemon) for daemon in cluster.daemons[:2]] == [PAGES, PAGES])
    before = cluster[0].status()["operations"]["get_local"]
    assert readers[0].has(keys)
    assert cluster[0].status()["operations"]["get_local"] == before + PAGES
    assert replicas(cluster[2]) == 0, "it has read them once"
    cluster[3].kill()
    eventually(lambda: all(pages.has(keys) for pages in readers))


def test_replicas_stay_within_their_share(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(2, pool_size=64 << 20, replica_share=0.003)
    writer, reader = (daemon.attach(page_bytes=SMALL_PAGE) for daemon in cluster.daemons)
    room = int(0.003 * (64 << 20)) // SMALL_PAGE
    half = room // 2
    for number in range(4):
        keys = keys_of(f"hot {number}", half)
        assert all(writer.set(keys))
        for _ in range(READS):
            assert reader.has(keys)
        eventually(partial(_has_seen, cluster, (number + 1) * half))
    assert 0 < replicas(cluster[1]) <= room


def test_a_removal_reaches_replicas(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(3, replica_share=0.1)
    keys = keys_of("hot", PAGES)
    with (
        Versions(cluster[0].socket_path, page_bytes=PAGE) as writer,
        Versions(cluster[1].socket_path, page_bytes=PAGE) as reader,
    ):
        assert all(writer.set(keys, 1))
        for _ in range(READS):
            assert set(reader.get(keys)) == {1}
        eventually(lambda: replicas(cluster[1]) == PAGES)
        assert set(writer.client.remove(keys)) == {Status.ok}
        assert sum(daemon.status()["pool"]["keys"] for daemon in cluster.daemons) == 0
        assert all(writer.set(keys, 2))
        assert set(reader.get(keys)) == {2}


@pytest.mark.netns
def test_a_crowd_of_readers_gives_each_other_what_it_has_got(
    network_of_five: Network, make_cluster: MakeCluster
) -> None:
    """Even if all read the pages for the first time. Without that, the holder would send each page
    to each of the four."""
    cluster = make_cluster(5, start=False, pool_size=256 << 20, replica_share=0.5)
    network_of_five.start(cluster)
    readers = [daemon.attach(page_bytes=LARGE_PAGE) for daemon in cluster.daemons[1:]]
    for number, reader in enumerate(readers):  # what reads of such a size take
        keys = keys_of(f"known {number}", PAGES)
        assert all(readers[number - 1].set(keys))
        assert reader.has(keys)
    writer = cluster[0].attach(page_bytes=LARGE_PAGE)
    assert all(writer.set([b"hot"]))
    for daemon, reader in zip(cluster.daemons[1:], readers, strict=True):
        eventually(partial(_becomes_a_replica, daemon, reader, b"hot"))

    keys = keys_of("crowd", PAGES)
    assert all(writer.set(keys))
    network_of_five.slow_down("a", SLOW_BITS_PER_S)
    before = _given(cluster)
    with ThreadPoolExecutor(len(readers)) as crowd:
        assert all(crowd.map(lambda reader: reader.has(keys), readers))
    assert _given(cluster) - before < 2.5 * len(keys)
    assert writer.client.remove(keys) == [Status.ok] * len(keys)
    for reader in readers:
        assert set(reader.get(keys)) == {Status.absent}


def _becomes_a_replica(daemon: Daemon, reader: Pages, key: bytes) -> bool:
    assert reader.has([key])
    return replicas(daemon) == 1


def _given(cluster: Cluster) -> int:
    """Pages that others have read from the first node."""
    peers = [peer for daemon in cluster.daemons[1:] for peer in daemon.status()["transfer"]]
    return sum(peer["pages"] for peer in peers if peer["node_id"] == "a")


def _has_seen(cluster: Cluster, hot_pages: int) -> bool:
    handover = cluster[1].status()["handover"]
    return int(handover["replicated"] + handover["replicate_refused"]) == hot_pages
