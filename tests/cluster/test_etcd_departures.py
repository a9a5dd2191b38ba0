"""With membership in etcd, a node that left in an orderly way is never reported as lost."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from harness.cluster import Cluster, Daemon
from harness.etcd import TTL_REFERENCE_S, Etcd, with_etcd
from harness.fixtures import MakeCluster
from harness.waiting import eventually

from peercached.admin.client import AdminClient


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


def saw_b_leave(*daemons: Daemon) -> None:
    for daemon in daemons:
        eventually(lambda: departure(daemon, "b"), 60)  # noqa: B023
        assert (departure(daemon, "b"), lost(daemon)) == ("left", [])


def test_dead_node_is_lost_by_its_lease_and_stopped_node_leaves_at_once(nodes: Cluster) -> None:
    a, b, c = nodes.daemons
    c.kill()
    nodes.wait_complete()
    assert b.stop() == 0
    eventually(lambda: a.members() == ["a"], TTL_REFERENCE_S)
    eventually(lambda: (departure(a, "b"), departure(a, "c")) == ("left", "lost"))
    assert lost(a) == ["c"], "b did not wait for the end of its lease"
    assert len(a.status()["departed"]) == 2
    for daemon in (b, c):
        daemon.start()
    nodes.wait_complete()
    assert len({daemon.view() for daemon in nodes.daemons}) == 1


@pytest.mark.parametrize(
    ("fails", "is_back"),
    [(Etcd.kill, Etcd.start), (Etcd.freeze, Etcd.thaw)],
    ids=["away", "hung"],
)
def test_a_node_that_was_stopped_without_etcd_has_left(
    nodes: Cluster,
    etcd: Etcd,
    fails: Callable[[Etcd], None],
    is_back: Callable[[Etcd], None],
) -> None:
    """It cannot write its goodbye. Its key goes when its lease ends."""
    a, b, c = nodes.daemons
    fails(etcd)
    assert b.stop() == 0
    is_back(etcd)
    saw_b_leave(a, c)


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
    saw_b_leave(a, c)
