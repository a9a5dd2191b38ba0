"""TLS is switched on in a running cluster, node by node: no node is ever alone, and no page that a
node keeps is missed."""

from __future__ import annotations

from pathlib import Path

from harness.certificates import Certificates
from harness.cluster import Cluster, Daemon
from harness.fixtures import MakeCluster
from harness.pages import keys_of
from harness.steady_reader import SteadyReader
from harness.waiting import eventually

from peercached.admin.client import AdminClient


def partial(daemon: Daemon) -> str:
    found = [entry["sentence"] for entry in daemon.status()["health"]]
    return " ".join(sentence for sentence in found if "TLS is being switched on" in sentence)


def sees(daemon: Daemon, node_ids: list[str]) -> bool:
    return daemon.connected_members() == node_ids


def switch(nodes: Cluster, config: Path, mode: str, certificates: Certificates) -> None:
    """The next mode on each node, one after another, without a restart."""
    for daemon in nodes.daemons:
        config.with_name(f"{daemon.node_id}.toml").write_text(f'tls_mode = "{mode}"\n')
        with AdminClient(str(daemon.admin_path)) as admin:
            assert admin.reload() == (["tls_mode"], [], [])
        eventually(lambda: all(sees(d, ["a", "b", "c"]) for d in nodes.daemons), 20)


def test_tls_is_switched_on_in_a_running_cluster(make_cluster: MakeCluster, tmp_path: Path) -> None:
    certificates = Certificates(tmp_path / "certificates")
    # A long TTL: a machine that stands still must not look like a node that was cut off.
    nodes = make_cluster(3, member_ttl_s=15)
    for daemon in nodes.daemons:
        config = tmp_path / f"{daemon.node_id}.toml"
        config.write_text('tls_mode = "accept"\n')
        daemon.stop()
        daemon.options |= {
            name.replace("_", "-"): value
            for name, value in certificates.options(daemon.node_id).items()
        }
        daemon.options["config"] = str(config)
        nodes.start_again(daemon)
    eventually(lambda: "meta_port is still plain" in partial(nodes[0]), 20)
    keys = keys_of("kept while TLS came", 32)
    assert all(nodes[1].attach().set(keys))
    with SteadyReader(nodes[2].attach(), keys) as reading:
        switch(nodes, tmp_path / "x", "prefer", certificates)
        eventually(lambda: all("All calls use TLS" in partial(d) for d in nodes.daemons), 20)
        switch(nodes, tmp_path / "x", "require", certificates)
        reading.wait_rounds(2)
    assert not any(partial(daemon) for daemon in nodes.daemons)
    assert nodes[0].attach().has(keys)
    for daemon in nodes.daemons:
        assert daemon.status()["security"]["tls_mode"] == "require"
        assert not daemon.status()["security"]["called_plain"]
    # And a node that comes back finds the others, over TLS.
    nodes[0].stop()
    nodes.start_again(nodes[0])


def test_nodes_without_tls_are_named_while_it_is_switched_on(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    certificates = Certificates(tmp_path / "certificates")
    accepts = [{**certificates.options(name), "tls_mode": "accept"} for name in "ab"]
    nodes = make_cluster(3, each=accepts)
    eventually(lambda: "These nodes have no TLS yet: c." in partial(nodes[0]), 20)
    keys = keys_of("of all", 16)
    assert all(nodes[0].attach().set(keys))
    assert nodes[2].attach().has(keys)


def test_stages_of_tls_work_together(make_cluster: MakeCluster, tmp_path: Path) -> None:
    """Neighbouring stages meet in a cluster that starts from nothing."""
    certificates = Certificates(tmp_path / "certificates")
    for modes in (("accept", "prefer", "accept"), ("prefer", "require", "prefer")):
        each = [
            {**certificates.options(name), "tls_mode": mode}
            for name, mode in zip("abc", modes, strict=True)
        ]
        nodes = make_cluster(3, each=each)
        for daemon in nodes.daemons:
            keys = keys_of(f"{daemon.node_id} {modes}", 8)
            assert all(daemon.attach().set(keys))
            assert all(other.attach().has(keys) for other in nodes.daemons)
