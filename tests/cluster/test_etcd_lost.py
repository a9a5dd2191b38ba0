"""etcd loses data: everything, a part, or a lease. Or etcd is unreachable for long."""

import pytest
from harness.cluster import Cluster
from harness.cut_proxy import CutProxy
from harness.etcd import TTL_REFERENCE_S, Etcd, with_etcd
from harness.fixtures import MakeCluster
from harness.pages import keys_of
from harness.steady_reader import SteadyReader
from harness.waiting import eventually


@pytest.fixture
def nodes(etcd: Etcd, make_cluster: MakeCluster) -> Cluster:
    return with_etcd(make_cluster, etcd.endpoint, 3)


def stamped(cluster: Cluster) -> bytes:
    """The stamp in etcd once all live nodes agree on one view."""
    views = {daemon.view() for daemon in cluster.daemons if daemon.alive}
    return "; ".join(f"{number} {mark} " for number, mark in views).encode()


def wait_healthy(cluster: Cluster, etcd: Etcd, timeout_s: float = 15.0) -> None:
    """Waits until all nodes agree with each other and with etcd, and no health sentence mentions
    etcd."""
    eventually(lambda: etcd.stamp().startswith(stamped(cluster)), timeout_s, "one view")
    live = [daemon for daemon in cluster.daemons if daemon.alive]
    eventually(lambda: not any("etcd" in d.sentences() for d in live), timeout_s, "healthy")


def test_wiped_etcd_gets_back_the_view_members_still_hold(nodes: Cluster, etcd: Etcd) -> None:
    wait_healthy(nodes, etcd)
    before = nodes[0].view()
    keys = keys_of("outlive all of etcd's data", 64)
    assert all(nodes[1].attach().set(keys))
    readers = [daemon.attach() for daemon in nodes.daemons]
    etcd.begin_anew()
    eventually(lambda: etcd.stamp() or not all(r.has(keys) for r in readers), 20, "the stamp")
    assert all(reader.has(keys) for reader in readers)
    wait_healthy(nodes, etcd)
    assert {daemon.view() for daemon in nodes.daemons} == {before}  # no ring has changed
    nodes[2].kill()
    eventually(lambda: nodes[0].members() == ["a", "b"], 20)
    assert nodes[0].view()[0] == before[0] + 1
    nodes.start_again(nodes[2])
    wait_healthy(nodes, etcd)
    assert all(daemon.attach().has(keys) for daemon in nodes.daemons)


def test_node_that_dies_during_an_etcd_wipe_is_reported_and_removed(
    nodes: Cluster, etcd: Etcd
) -> None:
    wait_healthy(nodes, etcd)
    etcd.kill()
    nodes[2].kill()
    etcd.begin_anew()
    eventually(lambda: "etcd lost its entries for c" in nodes[0].sentences(), 10)
    assert nodes[0].members() == ["a", "b", "c"]
    eventually(lambda: nodes[0].members() == ["a", "b"], 10)
    nodes.wait_complete()
    wait_healthy(nodes, etcd)


def test_etcd_restored_from_an_older_backup(nodes: Cluster, etcd: Etcd) -> None:
    etcd.keep_backup()
    wait_healthy(nodes, etcd)
    for _ in range(2):  # views advance, and "c" is a newer process than in the backup
        nodes[2].stop()
        eventually(lambda: nodes[0].members() == ["a", "b"], 20)
        nodes.start_again(nodes[2])
    wait_healthy(nodes, etcd)
    before = nodes[0].view()
    keys = keys_of("newer than the backup", 64)
    assert all(nodes[2].attach().set(keys))
    etcd.restore_backup()
    wait_healthy(nodes, etcd, 20)
    assert nodes[0].view() == before
    assert all(daemon.attach().has(keys) for daemon in nodes.daemons)


def test_revoked_lease_of_a_live_daemon_costs_no_miss_or_view(nodes: Cluster, etcd: Etcd) -> None:
    wait_healthy(nodes, etcd)
    before = nodes[0].view()
    keys = keys_of("a revoked lease", 64)
    assert all(nodes[2].attach().set(keys))
    with SteadyReader(nodes[0].attach(), keys) as reading:
        reading.wait_rounds(1)
        etcd.revoke_lease_of("c")
        eventually(lambda: "registering this node again" in nodes[2].log_text(), 5)
        eventually(lambda: etcd.has_node("c"), 10)
        wait_healthy(nodes, etcd)
        reading.check_whole("its lease was revoked", for_s=TTL_REFERENCE_S)
    assert {daemon.view() for daemon in nodes.daemons} == {before}


def test_nodes_cut_off_from_etcd_past_their_leases_keep_their_view(
    etcd: Etcd, make_cluster: MakeCluster
) -> None:
    with CutProxy(etcd.endpoint) as proxy:
        nodes = with_etcd(make_cluster, proxy.endpoint, 3)
        wait_healthy(nodes, etcd)
        before = nodes[0].view()
        keys = keys_of("behind a dead switch", 32)
        assert all(nodes[0].attach().set(keys))
        reader = nodes[2].attach()
        proxy.cut()
        eventually(lambda: all("no session with etcd" in d.sentences() for d in nodes.daemons), 10)
        eventually(lambda: not etcd.has_nodes(), 20, "etcd has ended the leases")
        assert reader.has(keys)
        proxy.mend()
        wait_healthy(nodes, etcd, 20)
        eventually(etcd.has_nodes)
        assert {daemon.view() for daemon in nodes.daemons} == {before}
        assert reader.has(keys)


def test_node_cut_off_alone_from_etcd_is_out_until_it_returns(
    etcd: Etcd, make_cluster: MakeCluster
) -> None:
    with CutProxy(etcd.endpoint) as proxy:
        nodes = with_etcd(make_cluster, etcd.endpoint, 3, start=False)
        nodes[2].options["etcd-endpoints"] = proxy.endpoint
        nodes.start()
        keys = keys_of("cut off alone", 32)
        assert all(nodes[2].attach().set(keys))
        proxy.cut()
        eventually(lambda: nodes[0].members() == ["a", "b"], 20)
        assert nodes[2].members() == ["a", "b", "c"]
        assert nodes[2].attach().has(keys)
        proxy.mend()
        nodes.wait_complete()
        wait_healthy(nodes, etcd)
        eventually(lambda: nodes[0].attach().has(keys), 10, "its pages are found again")


def test_start_without_etcd_uses_the_view_on_disk(nodes: Cluster, etcd: Etcd) -> None:
    keys = keys_of("a cold start", 32)
    assert all(nodes[0].attach().set(keys))
    wait_healthy(nodes, etcd)
    etcd.kill()
    nodes[2].stop()
    nodes[2].start()
    nodes[2].wait_ready()
    assert nodes[2].members() == ["a", "b", "c"]
    assert "Meanwhile it keeps view" in nodes[2].sentences()
    eventually(lambda: nodes[2].attach().has(keys), 10, "pages of the others are found")
    etcd.start()
    nodes.wait_complete()
    wait_healthy(nodes, etcd, 20)
    assert nodes[2].attach().has(keys)
