"""Pages with more holders than a lookup names."""

from concurrent.futures import ThreadPoolExecutor

from harness.cluster import Cluster
from harness.fixtures import MakeCluster
from harness.pages import Pages, keys_of
from harness.waiting import eventually

from peercache_client import Status
from peercached.admin.client import AdminClient

NODES = "abcdef"


def test_the_last_of_many_holders_is_found(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(len(NODES))
    keys = keys_of("held by all but one", 64)
    reader = cluster[0].attach()
    for holder in range(1, len(NODES)):
        assert all(cluster[holder].attach().set(keys))
    # First in the order in which the directory learned of them, then in reverse order.
    for dead in (1, 2, 5, 4):
        cluster[dead].kill()
        left = [name for at, name in enumerate(NODES) if cluster[at].alive]
        cluster[0].wait_members(left)
        assert reader.has(keys), f"with {left}"


def a_page_of_this_node_is_located_without_its_owners(cluster: Cluster) -> None:
    keys = keys_of("here", 64)
    worker = cluster[0].attach()
    assert all(worker.set(keys))
    with AdminClient(str(cluster[0].admin_path)) as admin:
        for key in keys:
            owners = [NODES.index(owner.node_id) for owner in admin.locate("test", key).owners]
            if 0 not in owners:
                break
        else:
            raise AssertionError("this node owns all digests")
        for owner in owners:
            cluster[owner].freeze()
        try:
            found = admin.locate("test", key)
        finally:
            for owner in owners:
                cluster[owner].thaw()
    assert not any(owner.answered for owner in found.owners)
    assert [holder.node_id for holder in found.holders] == ["a"]
    assert all(worker.client.remove(keys))


def test_removed_page_is_gone_at_all_its_holders(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(len(NODES), member_ttl_s=30)
    a_page_of_this_node_is_located_without_its_owners(cluster)
    workers = [cluster[at].attach() for at in range(len(NODES))]
    keys = keys_of("removed", 64)
    for worker in workers[1:]:
        assert all(worker.set(keys))
    eventually(lambda: workers[0].has(keys), 10)
    assert all(workers[0].client.remove(keys))
    for worker in workers:
        assert not any(worker.get(keys))
    assert [daemon.status()["pool"]["keys"] for daemon in cluster.daemons] == [0] * len(NODES)
    large_removals_of_several_nodes_end(workers[:3])


def large_removals_of_several_nodes_end(workers: list[Pages]) -> None:
    """Together they have more keys than a member once took. Each refused the others' for ever."""

    def remove(number: int) -> list[Status]:
        return workers[number].client.remove(keys_of(f"large {number}", 40_000), timeout_s=60)

    with ThreadPoolExecutor(len(workers)) as threads:
        for statuses in threads.map(remove, range(len(workers))):
            assert set(statuses) == {Status.absent}
