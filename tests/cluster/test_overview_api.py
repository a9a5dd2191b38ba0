"""The JSON API of the monitoring port, with real daemons."""

import json
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from harness.clock import seconds
from harness.cluster import Cluster, Daemon
from harness.disks import disk_options
from harness.fixtures import MakeCluster
from harness.pages import keys_of
from harness.waiting import eventually


def get(daemon: Daemon, path: str) -> Any:
    port = daemon.status()["node"]["metrics_port"]
    with urllib.request.urlopen(
        f"http://{daemon.host}:{port}{path}", timeout=seconds(10)
    ) as answer:
        return json.load(answer)


def nodes_of(daemon: Daemon) -> dict[str, Any]:
    return {node["node_id"]: node for node in get(daemon, "/api/v1/cluster")["nodes"]}


def test_every_node_reports_the_same_cluster_overview(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(4, max_masters=2)
    keys = keys_of("seen", 8)
    assert all(cluster[3].attach().set(keys))
    assert cluster[1].attach().has(keys)
    for daemon in cluster.daemons:
        found = get(daemon, "/api/v1/cluster")
        assert found["gathered_by"] in ("a", "b"), "masters ask, nobody else"
        nodes = {node["node_id"]: node for node in found["nodes"]}
        assert sorted(nodes) == ["a", "b", "c", "d"]
        assert [nodes[n]["is_master"] for n in "abcd"] == [True, True, False, False]
        assert {node["state"] for node in nodes.values()} == {"alive"}
        assert sum(node["ring_share"] for node in nodes.values()) == pytest.approx(1, abs=1e-6)
    eventually(lambda: nodes_of(cluster[2])["d"]["summary"]["pool_keys"] == 8, 10)
    eventually(lambda: nodes_of(cluster[2])["b"]["summary"]["found"]["peer"] == 8, 10)


def test_a_disk_is_shown_with_its_size_and_pages(make_cluster: MakeCluster, tmp_path: Path) -> None:
    cluster = make_cluster(2, each=disk_options(tmp_path, "a"))
    assert all(cluster[0].attach().set(keys_of("on disk", 8)))
    eventually(lambda: nodes_of(cluster[1])["a"]["summary"]["disk_keys"] == 8, 15)
    nodes = nodes_of(cluster[1])
    assert nodes["a"]["summary"]["disk_capacity_bytes"] == 256 << 20
    assert nodes["a"]["summary"]["disk_used_bytes"] > 0
    assert not nodes["b"]["summary"]["disk_enabled"]


def test_a_dead_node_is_silent_at_once_and_then_gone(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(3, member_ttl_s=8)
    assert nodes_of(cluster[1])["c"]["state"] == "alive"
    cluster[2].kill()
    eventually(lambda: nodes_of(cluster[1])["c"]["state"] == "silent", 6)
    silent = nodes_of(cluster[1])["c"]
    assert silent["problem"]
    assert silent["summary"] is not None, "what it said last"
    eventually(lambda: sorted(nodes_of(cluster[1])) == ["a", "b"], 30)


def test_a_frozen_master_is_passed_over(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(3, member_ttl_s=60, heartbeat_interval_s=1)
    cluster[0].freeze()
    found = get(cluster[2], "/api/v1/cluster")
    cluster[0].thaw()
    assert found["gathered_by"] in ("b", "c")
    assert "a" in found["problem"]
    states = {node["node_id"]: node["state"] for node in found["nodes"]}
    assert states == {"a": "silent", "b": "alive", "c": "alive"}


def test_a_key_is_located_and_nonsense_refused(three_nodes: Cluster) -> None:
    pages = three_nodes[1].attach()
    assert all(pages.set([b"findme"]))
    asked = urllib.parse.urlencode({"namespace": "test", "key": "findme"})
    found = get(three_nodes[0], f"/api/v1/locate?{asked}")
    assert [holder["node_id"] for holder in found["holders"]] == ["b"]
    assert len(found["owners"]) == 2
    # Anybody who reaches the port may ask, so a name alone must take no room.
    assert get(three_nodes[2], "/api/v1/locate?namespace=unknown&key=findme")["holders"] == []
    assert "unknown" not in [one["name"] for one in three_nodes[2].status()["namespaces"]]
    with pytest.raises(urllib.error.HTTPError) as refused:
        get(three_nodes[0], "/api/v1/locate?namespace=x")
    assert refused.value.code == 400
    assert "key is missing" in refused.value.read().decode()


def test_the_node_document_names_no_namespace(three_nodes: Cluster) -> None:
    three_nodes[1].attach(namespace="salt of a tenant")
    found = get(three_nodes[1], "/api/v1/node")
    assert found["node"]["id"] == "b"
    (worker,) = found["workers"]
    assert 0 <= worker["idle_s"] < 60
    assert "salt of a tenant" not in json.dumps(found)


def test_namespaces_are_named_where_the_configuration_says_that_readers_may_see_them(
    make_cluster: MakeCluster,
) -> None:
    cluster = make_cluster(1, metrics_namespace_names=True)
    cluster[0].attach(namespace="a model")
    found = get(cluster[0], "/api/v1/node")
    assert found["workers"][0]["namespace"] == "a model"
    assert [one["name"] for one in found["namespaces"]] == ["a model"]


def test_any_node_serves_the_last_hour_of_each_node(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(2)
    keys = keys_of("curved", 8)
    assert all(cluster[1].attach().set(keys))
    reader = cluster[0].attach()

    def grown(path: str) -> dict[str, float]:
        """Sums over all points."""
        found = get(cluster[1], path)["series"]
        return {name: sum(one or 0 for one in values) for name, values in found.items()}

    def has_read() -> bool:
        reader.get(keys)
        series = grown("/api/v1/curves?node=a")
        return bool(series["get_bytes"]) and bool(series["found_peer"])

    eventually(has_read, 40, "a point comes every ten seconds")
    of_a = grown("/api/v1/curves?node=a")
    assert of_a["tcp_bytes"] > 0 and of_a["rdma_bytes"] == 0
    assert 0 < of_a["get_p50"] <= of_a["get_p99"]
    eventually(lambda: get(cluster[1], "/api/v1/curves")["at"], 20, "it comes at the same time")
    of_b = get(cluster[1], "/api/v1/curves")
    assert of_b["node_id"] == "b"
    assert {at % 10 for at in of_b["at"]} == {0}, "so points of several nodes can be added"
    assert of_b["series"]["used"][-1] > 0
    with pytest.raises(urllib.error.HTTPError) as refused:
        get(cluster[1], "/api/v1/curves?node=c")
    assert refused.value.code == 502
    assert "there are a, b" in refused.value.read().decode()


def test_without_the_dashboard_only_metrics_are_served(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    config = tmp_path / "config.toml"
    config.write_text("metrics_dashboard = false\n")
    cluster = make_cluster(1, config=str(config))
    for path in ("/", "/api/v1/node", "/api/v1/cluster", "/api/v1/curves", "/api/v1/process"):
        with pytest.raises(urllib.error.HTTPError) as refused:
            get(cluster[0], path)
        assert refused.value.code == 404
