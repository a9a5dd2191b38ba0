"""`peercachectl ring` with real daemons: shares, replicas, and whether records are in sync."""

import json
from functools import partial

import pytest
from harness.cluster import Cluster, Daemon
from harness.ctl import ctl
from harness.fixtures import MakeCluster
from harness.pages import keys_of
from harness.waiting import eventually

from peercached.admin.client import AdminClient
from peercached.admin.ring import Ring


def ring_of(daemon: Daemon) -> Ring:
    with AdminClient(str(daemon.admin_path)) as admin:
        return admin.ring()


def test_all_daemons_show_the_same_ring_with_two_owners_of_every_digest(
    three_nodes: Cluster,
) -> None:
    rings = [ring_of(daemon) for daemon in three_nodes.daemons]
    shares = [[(n.node_id, n.share_first, n.share_owned) for n in ring.nodes] for ring in rings]
    assert shares[0] == shares[1] == shares[2]
    assert [node.node_id for node in rings[0].nodes] == ["a", "b", "c"]
    assert rings[0].replicas == 2
    assert sum(node.share_first for node in rings[0].nodes) == pytest.approx(1)
    assert sum(node.share_owned for node in rings[0].nodes) == pytest.approx(2)
    assert [node.is_self for node in rings[1].nodes] == [False, True, False]


def test_once_the_cluster_is_complete_all_records_are_in_sync(three_nodes: Cluster) -> None:
    def in_sync(daemon: Daemon) -> bool:
        ring = ring_of(daemon)
        return ring.final and all(
            node.our_records == "live" and node.its_records_here for node in ring.nodes
        )

    for daemon in three_nodes.daemons:
        eventually(partial(in_sync, daemon), 10)


def test_the_command_prints_a_table_or_json(three_nodes: Cluster) -> None:
    text = ctl(three_nodes[0], "ring").stdout
    assert "3 of 3 nodes own records, and each digest has 2 owner(s)" in text
    assert "this node" in text
    document = json.loads(ctl(three_nodes[0], "ring", "--json").stdout)
    assert [node["node_id"] for node in document["nodes"]] == ["a", "b", "c"]


def test_ring_report_shows_frozen_owner_suspect_and_records_not_live(
    make_cluster: MakeCluster,
) -> None:
    cluster = make_cluster(2, member_ttl_s=60, heartbeat_interval_s=1)
    cluster[1].freeze()
    writer = cluster[0].attach(timeout_s=5.0)
    assert all(writer.set(keys_of("waits", 16)))
    eventually(
        lambda: [n.suspect and n.our_records != "live" for n in ring_of(cluster[0]).nodes][1], 20
    )
    cluster[1].thaw()
    eventually(lambda: all(n.our_records == "live" for n in ring_of(cluster[0]).nodes), 30)
