"""With membership in etcd, a node that left in an orderly way is never reported as lost."""

from __future__ import annotations

import pytest
from harness.cluster import Cluster, Daemon
from harness.etcd import Etcd, reason_to_skip, with_etcd
from harness.fixtures import MakeCluster
from harness.waiting import eventually

from peercached.admin.client import AdminClient

pytestmark = pytest.mark.skipif(bool(reason_to_skip()), reason=reason_to_skip() or "etcd is here")


@pytest.fixture
def nodes(etcd: Etcd, make_cluster: MakeCluster) -> Cluster:
    return with_etcd(make_cluster, etcd.endpoint, 3)


def departure(daemon: Daemon, about: str) -> str:
    """The last event about that node: "lost" or "left"; empty: it has not departed."""
    with AdminClient(str(daemon.admin_path)) as admin:
        kinds = [event.kind for event in admin.events().events if event.node_id == about]
    return kinds[-1] if kinds[-1:] in (["lost"], ["left"]) else ""


def lost(daemon: Daemon) -> list[str]:
    return [gone["node_id"] for gone in daemon.status()["departed"] if gone["lost"]]


def test_a_stopped_node_has_left_and_a_killed_one_is_lost(nodes: Cluster) -> None:
    a, b, c = nodes.daemons
    assert b.stop() == 0
    eventually(lambda: departure(a, "b"), 30)
    c.kill()
    eventually(lambda: departure(a, "c"), 30)
    assert (departure(a, "b"), departure(a, "c")) == ("left", "lost")
    assert lost(a) == ["c"]


def test_a_node_that_was_stopped_while_etcd_was_away_has_left(nodes: Cluster, etcd: Etcd) -> None:
    """It cannot write its goodbye. Its key goes when its lease ends."""
    a, b, c = nodes.daemons
    etcd.kill()
    assert b.stop() == 0
    etcd.start()
    for daemon in (a, c):
        eventually(lambda: departure(daemon, "b"), 60)  # noqa: B023
        assert (departure(daemon, "b"), lost(daemon)) == ("left", [])


def test_a_node_that_was_stopped_while_etcd_hung_has_left(nodes: Cluster, etcd: Etcd) -> None:
    a, b, c = nodes.daemons
    etcd.freeze()
    assert b.stop() == 0
    etcd.thaw()
    for daemon in (a, c):
        eventually(lambda: departure(daemon, "b"), 60)  # noqa: B023
        assert (departure(daemon, "b"), lost(daemon)) == ("left", [])


def test_a_node_that_did_not_see_the_goodbye_finds_it_in_etcd(nodes: Cluster, etcd: Etcd) -> None:
    """Its watch broke: etcd restarted before it could read on."""
    a, b, c = nodes.daemons
    a.freeze()
    assert b.stop() == 0
    etcd.kill()
    etcd.start()
    a.thaw()
    for daemon in (a, c):
        eventually(lambda: "b" not in daemon.members(), 60)  # noqa: B023
        eventually(lambda: departure(daemon, "b"), 60)  # noqa: B023
        assert (departure(daemon, "b"), lost(daemon)) == ("left", [])
