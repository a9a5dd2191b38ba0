"""`write_policy`: pages that leave for another node once they are set, or are copied there."""

import pytest
from harness.cluster import Cluster, Daemon
from harness.fixtures import Attach, MakeCluster
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


def test_remote_gives_the_memory_back_and_loses_no_page(
    make_cluster: MakeCluster, attach: Attach
) -> None:
    cluster = lenders(make_cluster, "remote")
    keys = keys_of("set at a", PAGES)
    writer, reader = (attach(cluster[i], page_bytes=PAGE, room_pages=PAGES) for i in (0, 1))
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
    make_cluster: MakeCluster, attach: Attach, dies: int
) -> None:
    cluster = lenders(make_cluster, "both")
    keys = keys_of("set at a", PAGES)
    assert all(attach(cluster[0], page_bytes=PAGE, room_pages=PAGES).set(keys))
    eventually(lambda: cluster[0].status()["push"]["pages"] == PAGES)
    assert keys_held(cluster[0]) == PAGES
    reader = attach(cluster[1], page_bytes=PAGE, room_pages=PAGES)
    cluster[dies].kill()
    eventually(lambda: reader.has(keys))


def test_a_removal_reaches_pages_that_just_left(make_cluster: MakeCluster) -> None:
    cluster = lenders(make_cluster, "remote")
    with Versions(cluster[0].socket_path, page_bytes=PAGE, room_pages=PAGES) as worker:
        for version in range(1, 6):
            keys = keys_of("set at a", PAGES)
            assert all(worker.set(keys, version))
            assert set(worker.client.remove(keys)) == {Status.ok}
            assert worker.get(keys) == [None] * PAGES
    assert sum(map(keys_held, cluster.daemons)) == 0
