"""Settings that all nodes must share are compared when a node joins. If one differs, the node is
refused, and both sides tell both values."""

from __future__ import annotations

from harness.cluster import Cluster
from harness.etcd import Etcd, with_etcd
from harness.fixtures import MakeCluster
from harness.pages import keys_of
from harness.waiting import eventually

KEY = "directory-replicas"


def test_node_with_other_settings_is_refused_and_both_sides_tell_both_values(
    make_cluster: MakeCluster,
) -> None:
    cluster: Cluster = make_cluster(3, directory_copies=0)
    other = cluster[2]
    other.stop()
    other.options[KEY] = 1
    other.start()
    other.wait_ready()
    values = f"directory_replicas is 1 on {other.node_id} and 2 on "
    eventually(lambda: values in other.sentences(), 20)
    eventually(lambda: any(values in daemon.sentences() for daemon in cluster.daemons[:2]), 20)
    for daemon in cluster.daemons[:2]:
        assert other.node_id not in daemon.members()
    # The others find all pages: the refused node owns none of their records.
    keys = keys_of("pages of the cluster", 64)
    assert all(cluster[0].attach().set(keys))
    assert cluster[1].attach().has(keys)
    other.stop()
    other.options[KEY] = 2
    other.start()
    other.wait_ready()
    eventually(lambda: len(other.members()) == 3, 20)


def test_node_with_other_settings_does_not_start_in_a_cluster_kept_by_etcd(
    make_cluster: MakeCluster, etcd: Etcd
) -> None:
    cluster = with_etcd(make_cluster, etcd.endpoint, 3)
    other = cluster[2]
    other.stop()
    other.options[KEY] = 1
    other.start()
    assert other.wait_exit(20) != 0
    assert (
        f"directory_replicas is 2 on {cluster[0].node_id} and 1 on {other.node_id}"
        in other.log_tail()
    )
