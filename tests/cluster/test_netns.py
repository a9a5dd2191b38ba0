"""Hosts in separate network namespaces: a cut link costs misses until healed, never a stall."""

import pytest
from harness.cluster import Cluster
from harness.netns import Network
from harness.pages import keys_of
from harness.waiting import eventually

pytestmark = pytest.mark.netns

TIMEOUT_S = 4.0


def test_a_cut_link_costs_misses_until_it_heals_and_never_a_stall(
    network: Network, hosts: Cluster
) -> None:
    far, near = keys_of("far", 32), keys_of("near", 32)
    assert all(hosts[1].attach().set(far))
    reader = hosts[0].attach(timeout_s=TIMEOUT_S)
    assert all(reader.set(near))
    assert reader.has(far)

    network.cut("b")
    assert not any(reader.get(far))
    reader.calls.forget_longest()
    assert all(reader.set(keys_of("set while cut", 32)))
    assert reader.has(near)
    for _ in range(20):
        assert not any(reader.get(far))
        assert all(reader.get(near))
        assert reader.client.batch_exists(near) == 32
        assert reader.client.batch_exists(far) == 0
        assert not any(reader.client.contains(far))
    reader.calls.check_none_waited()

    network.heal("b")
    eventually(lambda: reader.has(far), 30, "its pages are hits again")
    hosts.wait_complete()


def test_both_partition_sides_serve_their_pages_and_share_them_after_healing(
    network: Network, hosts: Cluster
) -> None:
    here, there = hosts[0].attach(timeout_s=TIMEOUT_S), hosts[2].attach(timeout_s=TIMEOUT_S)
    network.cut("c")
    eventually(lambda: hosts[0].connected_members() == ["a", "b"], 20)
    set_here, set_there = keys_of("set here", 32), keys_of("set there", 32)
    assert all(here.set(set_here))
    assert all(there.set(set_there))
    assert hosts[1].attach().has(set_here)
    assert there.has(set_there)
    network.heal("c")
    hosts.wait_complete()
    eventually(lambda: here.has(set_there), 20, "what the cut node set is found")
    eventually(lambda: there.has(set_here), 20, "the cut node finds what the others set")
