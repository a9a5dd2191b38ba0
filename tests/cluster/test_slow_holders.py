"""A slow or frozen node costs a get nothing but its own pages."""

import pytest
from harness.fixtures import MakeCluster
from harness.netns import Network
from harness.pages import keys_of
from harness.waiting import eventually

PAGE = 64 << 10
PAGES = 64
LARGE_PAGE = 512 << 10  # so many of them are read in slices, whatever is known of the holder
# A slice takes longer than a get has. Yet it is too quick to be suspect (kDribbleBytesPerS).
SLOW_BITS_PER_S = 4_000_000
TIMEOUT_S = 3.0


def test_pages_of_a_frozen_node_come_from_their_other_holders(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(3, replica_share=0, member_ttl_s=20)
    keys = keys_of("held twice", PAGES)
    for holder in cluster.daemons[:2]:
        assert all(holder.attach(page_bytes=PAGE).set(keys))
    reader = cluster[2].attach(page_bytes=PAGE, timeout_s=TIMEOUT_S)
    eventually(lambda: cluster[2].status()["copies"]["records"] >= 2 * PAGES, 10)
    assert reader.has(keys)
    for frozen in cluster.daemons[:2]:
        frozen.freeze()
        statuses = reader.get(keys)
        frozen.thaw()
        assert all(statuses), f"with {frozen.node_id} frozen"
        eventually(lambda: cluster[2].connected_members() == ["a", "b", "c"], 20)


@pytest.mark.netns
def test_pages_of_a_quick_node_do_not_wait_for_those_of_a_slow_one(
    network: Network, on_hosts: MakeCluster
) -> None:
    """Both are read in turns, because there is so much to read."""
    hosts = on_hosts(pool_size=256 << 20, replica_share=0)
    slow, quick = keys_of("slow", PAGES), keys_of("quick", PAGES)
    assert all(hosts[0].attach(page_bytes=LARGE_PAGE).set(slow))
    assert all(hosts[1].attach(page_bytes=LARGE_PAGE).set(quick))
    reader = hosts[2].attach(page_bytes=LARGE_PAGE, room_pages=2 * PAGES, timeout_s=TIMEOUT_S)
    eventually(lambda: reader.has(slow + quick), 30)
    network.slow_down("a", SLOW_BITS_PER_S, hosts[0].status()["node"]["data_port"])
    statuses = reader.get(slow + quick)
    assert not all(statuses[:PAGES]), "it is slow indeed"
    assert all(statuses[PAGES:])
