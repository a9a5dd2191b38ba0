"""A partition of five nodes, with a head in each part: both parts serve, and they reunite."""

import pytest
from harness.cluster import Cluster, Daemon
from harness.directory import wait_settled
from harness.fixtures import MakeCluster
from harness.netns import Network
from harness.pages import Pages, keys_of
from harness.steady_reader import SteadyReader
from harness.waiting import eventually

pytestmark = pytest.mark.netns

PAGE_BYTES = 4096
SMALL = "de"


def set_all(pages: Pages, keys: list[bytes]) -> list[bytes]:
    for at in range(0, len(keys), 64):
        assert all(pages.set(keys[at : at + 64]))
    return keys


def found(pages: Pages, keys: list[bytes]) -> int:
    return sum(sum(map(bool, pages.get(keys[at : at + 64]))) for at in range(0, len(keys), 64))


def view(daemon: Daemon) -> tuple[int, str, str]:
    now = daemon.status()["membership"]
    members = "".join(sorted(member["node_id"] for member in now["members"]))
    return now["view_number"], now["view_mark"], members


def with_two_heads(network: Network, cluster: Cluster) -> None:
    """Starts each node on its host. The heads are a and d."""
    heads = [f"{network.address(d.node_id)}:{d.meta_port}" for d in (cluster[0], cluster[3])]
    for daemon in cluster.daemons:
        daemon.host = network.address(daemon.node_id)
        daemon.launcher = network.launcher(daemon.node_id)
        daemon.heads = heads
    cluster.start()


def test_both_parts_serve_their_pages_and_agree_after_healing(
    network_of_five: Network, make_cluster: MakeCluster
) -> None:
    """Some records have both owners in the other part. Their pages are found again once the part
    has its own view and has informed its owners. During healing no node misses a page of its own
    part."""
    network = network_of_five
    cluster = make_cluster(5, start=False, location_cache_entries=1024)
    with_two_heads(network, cluster)
    a, b, c, d, e = cluster.daemons
    workers = {daemon.node_id: daemon.attach(page_bytes=PAGE_BYTES) for daemon in cluster.daemons}
    of_large = set_all(workers["c"], keys_of("in the large part", 2048))
    of_small = set_all(workers["e"], keys_of("in the small part", 2048))
    at_b, at_d = (one.attach(page_bytes=PAGE_BYTES, timeout_s=10.0) for one in (b, d))
    with SteadyReader(at_b, of_large) as in_large, SteadyReader(at_d, of_small) as in_small:
        in_large.wait_rounds(1)
        in_small.wait_rounds(1)
        network.split(SMALL)
        for part in ((a, b, c), (d, e)):
            wait_settled(part, within_s=15)
        readings = (in_large, in_small)
        for reading in readings:
            reading.forget()
        new_of_large = set_all(workers["a"], keys_of("set in the large part", 128))
        new_of_small = set_all(workers["d"], keys_of("set in the small part", 128))
        both = [set_all(workers[name], keys_of("set in both", 64)) for name in "ae"]
        assert found(workers["b"], new_of_large) == found(workers["e"], new_of_small) == 128
        assert found(workers["a"], of_small) == found(workers["d"], of_large) == 0
        for reading in readings:
            reading.check_whole("each part has a view of its own", rounds=2, for_s=2.0)
        network.unite(SMALL)
        wait_settled(cluster.daemons, within_s=15)
        for reading in readings:
            reading.check_whole("the parts have met", rounds=2, for_s=2.0)
    eventually(lambda: len({view(daemon) for daemon in cluster.daemons}) == 1, 10)
    assert view(a)[2] == "abcde"
    for pages in workers.values():
        for keys in (of_large, of_small, new_of_large, new_of_small, both[0]):
            eventually(lambda: found(pages, keys) == len(keys), 20)  # noqa: B023
    agreed = {view(daemon) for daemon in cluster.daemons}
    assert len(agreed) == 1, "nobody goes back to a view of its part"
