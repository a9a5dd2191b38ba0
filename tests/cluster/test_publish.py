"""Records of new pages reach their owners among several nodes, between native threads."""

import itertools
from functools import partial

from harness.cluster import Daemon
from harness.directory import wait_settled
from harness.fixtures import MakeCluster
from harness.pages import Pages, keys_of
from harness.waiting import eventually

PAGE_BYTES = 64 << 10


def told(daemon: Daemon) -> tuple[int, int]:
    """Counts of frames sent to owners, and of batches that not every owner had."""
    operations = daemon.status()["operations"]
    return operations["publish_frames"], operations["unpublished"]


def test_untroubled_set_tells_each_owner_once(make_cluster: MakeCluster) -> None:
    """All nodes find the pages once the set has answered. Each digest has two owners out of eight
    nodes."""
    cluster = make_cluster(8, member_ttl_s=15, rpc_timeout_ms=5000)
    wait_settled(cluster.daemons)
    pages = [daemon.attach(page_bytes=4096) for daemon in cluster.daemons]
    names = itertools.count()

    def is_told(writer: int) -> bool:
        """False if an owner was late because the machine is busy. Then the caller retries."""
        before = told(cluster[writer])
        keys = keys_of(f"round {next(names)}", 32)
        assert all(pages[writer].set(keys))
        assert all(other.has(keys) for other in pages)
        frames, untold = told(cluster[writer])
        assert frames - before[0] <= 7, "one to each of the others at most"
        return untold == before[1]

    for writer in range(8):
        eventually(partial(is_told, writer))


def test_late_frames_to_a_frozen_owner_leave_no_stale_records(make_cluster: MakeCluster) -> None:
    """Frames wait in the frozen owner's sockets while their pages are set and evicted."""
    cluster = make_cluster(
        3, member_ttl_s=15, rpc_timeout_ms=5000, pool_size="8MiB", spill_bytes_per_s=0
    )
    wait_settled(cluster.daemons)
    frozen = cluster[2]
    readers = [daemon.attach(page_bytes=PAGE_BYTES, room_pages=200) for daemon in cluster.daemons]
    writer = readers[0]
    assert all(writer.set(keys_of("warm", 10)))
    frozen.freeze()
    early = keys_of("early", 20)
    assert all(writer.set(early))
    assert readers[1].has(early), "the other owner has all of them, or asks the holder"
    # Three pools full: all earlier pages are evicted, although they were read.
    later = keys_of("later", 400)
    for start in range(0, len(later), 50):
        assert all(writer.set(later[start : start + 50]))
    frozen.thaw()
    wait_settled(cluster.daemons)
    for reader in readers:
        # A node may use cached results for up to 200 ms.
        eventually(partial(found_none, reader, early))
        assert found(reader, later[-20:]) == 20


def found_none(reader: Pages, keys: list[bytes]) -> bool:
    return found(reader, keys) == 0


def found(reader: Pages, keys: list[bytes]) -> int:
    return sum(reader.client.contains(keys))
