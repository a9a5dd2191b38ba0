"""Real daemons with certificates form a cluster, and daemons without valid ones stay out."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import etcd as etcd_harness
from harness.certificates import Certificates
from harness.cluster import Daemon
from harness.etcd import Etcd, with_etcd
from harness.fixtures import MakeCluster
from harness.pages import keys_of
from harness.waiting import eventually


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path / "certificates")


def security(daemon: Daemon) -> dict[str, object]:
    found: dict[str, object] = daemon.status()["security"]
    return found


def in_clear(daemon: Daemon) -> list[str]:
    sentences = [entry["sentence"] for entry in daemon.status()["health"]]
    return [sentence for sentence in sentences if "encrypted" in sentence]


def test_pages_cross_and_a_rotation_under_way_costs_no_hit(
    make_cluster: MakeCluster, certificates: Certificates
) -> None:
    nodes = make_cluster(3, each=[certificates.options(name) for name in "abc"])
    keys = keys_of("over TLS", 64)
    assert all(nodes[0].attach().set(keys))
    reader = nodes[2].attach()
    assert reader.has(keys)
    for round_ in (1, 2):
        for name in "abc":
            certificates.issue(name)

        def all_took_them(wanted: int = round_) -> bool:
            assert reader.has(keys)
            return all(security(daemon)["tls_reloads"] == wanted for daemon in nodes.daemons)

        eventually(all_took_them, 20)
    for daemon in nodes.daemons:
        assert security(daemon)["meta_ended_silent"] == 0
        assert security(daemon)["data_sealed"]
        assert not in_clear(daemon)
    nodes[1].kill()
    nodes.start_again(nodes[1])
    assert nodes[1].attach().has(keys)
    # The daemon counts a connection that a peer opened and abandoned. Each death may cause one.
    for daemon in nodes.daemons:
        assert security(daemon)["meta_ended_silent"] in range(3)


def test_node_with_a_plaintext_data_port_is_read_and_reported(
    make_cluster: MakeCluster, certificates: Certificates
) -> None:
    each: list[dict[str, object]] = [{**certificates.options(name)} for name in "abc"]
    each[2]["tls_data_port"] = False
    nodes = make_cluster(3, each=each)
    for holder in nodes.daemons:
        keys = keys_of(f"of {holder.node_id}", 16)
        assert all(holder.attach().set(keys))
        for reader in nodes.daemons:
            assert reader.attach().has(keys)
    said = ["Pages from c are sent unencrypted: tls_data_port is off there."]
    assert [in_clear(daemon) for daemon in nodes.daemons] == [said, said, []]
    assert [security(daemon)["data_sealed"] for daemon in nodes.daemons] == [True, True, False]


def test_a_daemon_does_not_start_with_another_hosts_certificate(
    make_cluster: MakeCluster, certificates: Certificates
) -> None:
    nodes = make_cluster(1, start=False, each=[certificates.options("b")])
    nodes[0].start()
    assert nodes[0].wait_exit(30) != 0
    assert "not for host 127.0.0.1" in nodes[0].log_text()


@pytest.fixture
def etcd(tmp_path: Path, certificates: Certificates) -> Iterator[Etcd]:
    if reason := etcd_harness.reason_to_skip():
        pytest.skip(reason)
    # etcd uses a certificate of the site's authority. Node a's also covers 127.0.0.1.
    etcd = Etcd(tmp_path, certificates.issue("a"))
    etcd.start()
    yield etcd
    etcd.kill()


def test_etcd_over_tls_keeps_the_membership(
    make_cluster: MakeCluster, certificates: Certificates, etcd: Etcd
) -> None:
    each = [certificates.options(name) for name in "ab"]
    nodes = with_etcd(make_cluster, etcd.endpoint, 2, each=each)
    keys = keys_of("met in etcd over TLS", 16)
    assert all(nodes[0].attach().set(keys))
    assert nodes[1].attach().has(keys)
    # New files force a new connection to etcd, which uses them.
    certificates.issue("b")
    eventually(lambda: security(nodes[1])["tls_reloads"] == 1, 20)
    etcd.kill()
    etcd.start()
    nodes.wait_complete()
    eventually(lambda: "etcd" not in nodes[1].sentences(), 20)
    assert nodes[1].attach().has(keys)
