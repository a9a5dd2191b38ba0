"""`write_policy`: pages that leave for another node once they are set, or are copied there."""

from concurrent.futures import ThreadPoolExecutor
from time import sleep

import pytest
from harness.cluster import Cluster, Daemon
from harness.fixtures import MakeCluster
from harness.pages import keys_of
from harness.versions import Versions
from harness.waiting import eventually

from peercache_client import Status

PAGE = 64 << 10
PAGES = 128


def keys_held(daemon: Daemon) -> int:
    return int(daemon.status()["pool"]["keys"])


def lenders(make_cluster: MakeCluster, policy: str) -> Cluster:
    """a's workers set pages, b's read them, c has only memory."""
    return make_cluster(
        3, each=[{"write_policy": policy}, {"pool_size": "1MiB"}, {"role": "memory"}]
    )


def test_remote_gives_the_memory_back_and_loses_no_page(make_cluster: MakeCluster) -> None:
    cluster = lenders(make_cluster, "remote")
    keys = keys_of("set at a", PAGES)
    writer, reader = (cluster[i].attach(page_bytes=PAGE, room_pages=PAGES) for i in (0, 1))
    assert all(writer.set(keys))
    assert reader.has(keys), "also while they move"
    eventually(lambda: keys_held(cluster[0]) == 0)
    pushed = cluster[0].status()["push"]
    assert pushed == pushed | {"pages": PAGES, "bytes": PAGES * PAGE, "kept": 0}
    assert keys_held(cluster[2]) > PAGES - 16
    for pages in (writer, reader):
        assert pages.has(keys)


@pytest.mark.parametrize("dies", [0, 2])
def test_with_both_the_death_of_one_holder_costs_no_page(
    make_cluster: MakeCluster, dies: int
) -> None:
    cluster = lenders(make_cluster, "both")
    keys = keys_of("set at a", PAGES)
    assert all(cluster[0].attach(page_bytes=PAGE, room_pages=PAGES).set(keys))
    eventually(lambda: cluster[0].status()["push"]["pages"] == PAGES)
    assert keys_held(cluster[0]) == PAGES
    reader = cluster[1].attach(page_bytes=PAGE, room_pages=PAGES)
    cluster[dies].kill()
    eventually(lambda: reader.has(keys))


def test_two_nodes_that_push_the_same_pages_keep_one_copy(make_cluster: MakeCluster) -> None:
    """Each would take the other's copy for the one that stays."""
    cluster = make_cluster(2, write_policy="remote")
    workers = [daemon.attach(page_bytes=PAGE, room_pages=PAGES) for daemon in cluster.daemons]
    for number in range(5):
        keys = keys_of(f"set at both {number}", PAGES)
        with ThreadPoolExecutor(2) as threads:
            for statuses in threads.map(lambda worker, some=keys: worker.set(some), workers):
                assert all(statuses)
        eventually(lambda: all(_is_idle(daemon) for daemon in cluster.daemons), 30)
        for worker in workers:
            assert worker.has(keys)


def test_a_busy_taker_is_waited_for(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(2, pool_size="128MiB", each=[{"write_policy": "both"}, {}])
    keys = keys_of("many", 3000)
    writer = cluster[0].attach(page_bytes=16 << 10, room_pages=500)
    for at in range(0, len(keys), 500):
        assert all(writer.set(keys[at : at + 500]))
    eventually(lambda: cluster[0].status()["push"]["pages"] == len(keys), 30)


def _is_idle(daemon: Daemon) -> bool:
    """Whether nothing is pushed, and what was pushed is dropped."""
    before = daemon.status()["push"], keys_held(daemon)
    sleep(1.0)
    return (daemon.status()["push"], keys_held(daemon)) == before


def test_a_removal_reaches_pages_that_just_left(make_cluster: MakeCluster) -> None:
    cluster = lenders(make_cluster, "remote")
    with Versions(cluster[0].socket_path, page_bytes=PAGE, room_pages=PAGES) as worker:
        for version in range(1, 6):
            keys = keys_of("set at a", PAGES)
            assert all(worker.set(keys, version))
            assert set(worker.client.remove(keys)) == {Status.ok}
            assert worker.get(keys) == [None] * PAGES
    assert sum(map(keys_held, cluster.daemons)) == 0
