"""Membership in a real etcd, which may be down, hang or restart, and may lose leases."""

from pathlib import Path

import pytest
from harness.cluster import Cluster
from harness.etcd import TTL_S, Etcd, reason_to_skip, with_etcd
from harness.fixtures import MakeCluster
from harness.pages import keys_of
from harness.waiting import eventually, moments

pytestmark = pytest.mark.skipif(bool(reason_to_skip()), reason=reason_to_skip() or "etcd is here")


@pytest.fixture
def nodes(etcd: Etcd, make_cluster: MakeCluster) -> Cluster:
    return with_etcd(make_cluster, etcd.endpoint, 3)


def test_nodes_meet_in_etcd_and_have_one_view(nodes: Cluster) -> None:
    eventually(lambda: len({daemon.view() for daemon in nodes.daemons}) == 1)
    keys = keys_of("met in etcd", 32)
    assert all(nodes[0].attach().set(keys))
    assert nodes[2].attach().has(keys)
    assert nodes[0].status()["membership"]["kind"] == "etcd"


def test_a_restart_is_a_new_member_at_once(nodes: Cluster) -> None:
    def incarnation() -> str:
        members = nodes[0].status()["membership"]["members"]
        return next((m["incarnation"] for m in members if m["node_id"] == "c"), "")

    old = incarnation()
    nodes[2].kill()
    nodes[2].start()
    eventually(lambda: incarnation() not in ("", old), 20)
    nodes.wait_complete()


def test_members_outlive_an_etcd_outage_and_its_restart(nodes: Cluster, etcd: Etcd) -> None:
    keys = keys_of("outlive etcd", 32)
    assert all(nodes[0].attach().set(keys))
    reader = nodes[2].attach()
    etcd.kill()
    eventually(lambda: "no session with etcd" in nodes[1].sentences(), 10)
    for _ in moments(3 * TTL_S):
        assert nodes[1].members() == ["a", "b", "c"]
        assert reader.has(keys)
    etcd.start()
    eventually(lambda: not any("etcd" in d.sentences() for d in nodes.daemons), 20)
    nodes.wait_complete()
    eventually(lambda: len({daemon.view() for daemon in nodes.daemons}) == 1)
    assert reader.has(keys)
    nodes[1].kill()
    eventually(lambda: nodes[0].members() == ["a", "c"], 20)


def test_hung_etcd_is_reported_and_reads_continue(nodes: Cluster, etcd: Etcd) -> None:
    keys = keys_of("beside a hung etcd", 16)
    assert all(nodes[0].attach().set(keys))
    etcd.freeze()
    try:
        eventually(lambda: "no session with etcd" in nodes[1].sentences(), 10)
        eventually(lambda: "did not answer in time" in nodes[1].log_text(), 10)
        assert nodes[2].attach().has(keys)
    finally:
        etcd.thaw()
    eventually(lambda: not any("etcd" in d.sentences() for d in nodes.daemons), 20)
    nodes.wait_complete()


def test_a_node_that_lost_its_lease_registers_again(nodes: Cluster) -> None:
    keys = keys_of("a lost lease", 16)
    writer = nodes[2].attach()
    assert all(writer.set(keys))
    nodes[2].freeze()
    try:
        eventually(lambda: nodes[0].members() == ["a", "b"], 20)
    finally:
        nodes[2].thaw()
    nodes.wait_complete()
    eventually(lambda: nodes[0].attach().has(keys), 10, "its pages are found again")


def test_a_node_without_etcd_serves_alone_says_so_and_joins_later(
    tmp_path: Path, make_cluster: MakeCluster
) -> None:
    etcd = Etcd(tmp_path)
    cluster = with_etcd(make_cluster, etcd.endpoint, 2, start=False)
    for daemon in cluster.daemons:
        daemon.start()
    for daemon in cluster.daemons:
        daemon.wait_ready()
        assert "serves only its own pages" in daemon.sentences()
    keys = keys_of("without etcd", 16)
    pages = cluster[0].attach()
    assert all(pages.set(keys))
    assert pages.has(keys)
    etcd.start()
    try:
        cluster.wait_complete()
        eventually(lambda: cluster[1].attach().has(keys), 10)
    finally:
        etcd.kill()


def test_the_same_node_id_elsewhere_is_refused(
    nodes: Cluster, etcd: Etcd, make_cluster: MakeCluster
) -> None:
    twin = with_etcd(make_cluster, etcd.endpoint, 1, start=False)
    twin[0].node_id, twin[0].host = "b", "127.0.0.9"
    twin[0].start()
    assert twin[0].wait_exit(30) != 0
    assert "already used by the daemon at 127.0.0.2" in twin[0].log_text()
    assert nodes[0].members() == ["a", "b", "c"]


def test_a_clear_that_a_node_missed_reaches_it_through_etcd(nodes: Cluster) -> None:
    keys = keys_of("cleared", 16)
    pages, late = nodes[0].attach(), nodes[2].attach()
    assert all(late.set(keys))
    nodes[2].freeze()
    try:
        pages.client.clear()
    finally:
        nodes[2].thaw()
    eventually(lambda: not any(late.get(keys)), 20, "the clear reaches the node that was away")
