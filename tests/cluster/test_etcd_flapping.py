"""Flapping nodes in etcd mode, and what the others see of them, with a real etcd."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from harness.clock import now_s, seconds
from harness.cut_proxy import CutProxy
from harness.etcd import TTL_S, Etcd, with_etcd
from harness.etcd_memberships import in_thread, membership, until
from harness.fixtures import MakeCluster
from harness.pages import keys_of
from harness.said import sentences as sentences_of
from harness.waiting import eventually

from peercache_client import Status
from peercached.membership import Timing, View
from peercached.membership.flapping import FREE_JOINS, SPARE

TIMING = Timing(heartbeat_interval_s=seconds(0.5), member_ttl_s=TTL_S)


def flaps(wait_s: float) -> bytes:
    """Joins in etcd that make a node wait that long."""
    return f"7.000 {wait_s / SPARE:.1f} 0.0".encode()


class Node:
    """One membership. Every start is a new incarnation."""

    def __init__(
        self, etcd: Etcd, node_id: str, endpoint: str = "", timing: Timing = TIMING
    ) -> None:
        self.etcd = etcd
        self.node_id = node_id
        self.timing = timing
        self.endpoint = endpoint or etcd.endpoint
        self.incarnation = 0
        self.views: list[View] = []

    async def start(self) -> None:
        self.incarnation += 1
        port = 1000 + ord(self.node_id)
        self.membership = membership(
            self.node_id, self.incarnation, port, self.endpoint, self.timing, self.views
        )
        self.membership.start()
        await self.membership.settle(0.0)

    async def kill(self) -> None:
        """Revokes the lease as well, so that no test has to wait for its expiry."""
        await self.membership.stop()
        if self.names_in_etcd:
            await in_thread(lambda: self.etcd.revoke_lease_of(self.node_id))

    @property
    def names_in_etcd(self) -> bool:
        return self.membership.view.number > 0

    @property
    def said(self) -> str:
        return " ".join(sentences_of(self.membership.say))

    @property
    def waits(self) -> bool:
        return "has come and gone too often" in self.said

    @property
    def names(self) -> str:
        return "".join(m.node_id for m in self.membership.view.members)


@asynccontextmanager
async def cluster(*nodes: Node) -> AsyncIterator[None]:
    for node in nodes:
        await node.start()
    try:
        await all_in(nodes)
        yield
    finally:
        for node in nodes:
            await node.membership.stop()


async def all_in(nodes: tuple[Node, ...]) -> None:
    everybody = "".join(node.node_id for node in nodes)
    await until(lambda: {node.names for node in nodes} == {everybody}, "one view of all")


async def test_repeatedly_killed_node_stops_changing_the_view(etcd: Etcd) -> None:
    a, b = Node(etcd, "a"), Node(etcd, "b")
    async with cluster(a, b):
        free = 1
        while not b.waits:
            await b.kill()
            await until(lambda: a.names == "a", "it is out")
            await b.start()
            await until(lambda: b.waits or a.names == "ab", "it waits or may join at once")
            free += not b.waits
        assert FREE_JOINS <= free <= FREE_JOINS + 1  # the first join may have lost some weight
        made, joins = len(a.views), etcd.joins_of("b").split()[0]
        for _ in range(20):
            await b.membership.stop()
            await b.start()
            assert b.waits
        assert len(a.views) == made
        await b.membership.stop()
        assert etcd.joins_of("b").split()[0] == joins  # joins during the wait are not counted
        await b.start()
        began = time.monotonic()
        await until(lambda: a.names == "ab", "who stays is let in")
        assert time.monotonic() - began > TTL_S / 2
        assert len(a.views) == made + 1
        print(f"{len(a.views)} views for {b.incarnation} starts")


async def test_a_steady_node_is_let_in_at_once_after_each_upgrade(etcd: Etcd) -> None:
    a, b = Node(etcd, "a"), Node(etcd, "b")
    async with cluster(a, b):
        for _ in range(4):
            await b.membership.leave(1.0)
            await b.start()
            began = now_s()
            await until(lambda: b.names == "ab", "it is in")
            assert now_s() - began < TTL_S
            assert not b.waits


async def test_leaving_node_is_out_within_half_a_heartbeat(etcd: Etcd) -> None:
    """A leaving node announces it. A node that vanished silently gets one heartbeat interval to
    return."""
    patient = Timing(heartbeat_interval_s=seconds(10), member_ttl_s=seconds(40))

    a, b = Node(etcd, "a", timing=patient), Node(etcd, "b", timing=patient)
    async with cluster(a, b):
        began = now_s()
        await b.membership.leave(1.0)
        await until(lambda: a.names == "a", "it is out")
        assert now_s() - began < patient.heartbeat_interval_s / 2


async def test_damped_node_that_loses_its_lease_waits_again(etcd: Etcd) -> None:
    a, b = Node(etcd, "a"), Node(etcd, "b")
    async with cluster(a, b):
        await b.kill()
        etcd.put_joins_of("b", flaps(2 * TTL_S))
        with CutProxy(etcd.endpoint) as proxy:
            b.endpoint = proxy.endpoint
            await b.start()
            assert b.waits
            proxy.cut()
            await until(lambda: "no session with etcd" in b.said, "it misses etcd")
            await asyncio.sleep(2 * TTL_S)  # longer than its wait and its lease
            made = len(a.views)
            proxy.mend()
            await until(lambda: b.waits, "it waits anew")
            assert len(a.views) == made
            await until(lambda: a.names == "ab", "it has stayed")


async def test_a_restart_of_etcd_in_the_wait_lengthens_no_wait(etcd: Etcd) -> None:
    a, b = Node(etcd, "a"), Node(etcd, "b")
    async with cluster(a, b):
        await b.kill()
        etcd.put_joins_of("b", flaps(4 * TTL_S))
        await b.start()
        began = now_s()
        await asyncio.sleep(2 * TTL_S)
        await in_thread(etcd.kill)
        await in_thread(etcd.start)
        await until(lambda: b.waits, "it goes on waiting")
        await until(lambda: a.names == "ab", "it has stayed")
        assert now_s() - began < 6 * TTL_S


async def test_etcd_hiccups_are_not_counted_as_joins(etcd: Etcd) -> None:
    nodes = Node(etcd, "a"), Node(etcd, "b"), Node(etcd, "c")
    async with cluster(*nodes):
        joins = [etcd.joins_of(node.node_id) for node in nodes]
        made = [len(node.views) for node in nodes]
        assert all(value.startswith(b"1.000 ") for value in joins)
        for _ in range(2):
            await in_thread(etcd.kill)
            await until(
                lambda: all("no session with etcd" in n.said for n in nodes), "it is missed"
            )
            await in_thread(etcd.start)
            await until(lambda: not any(node.said for node in nodes), "it is back")
        for _ in range(8):  # all leases at once
            for node in nodes:
                await in_thread(lambda node=node: etcd.revoke_lease_of(node.node_id))
            await until(lambda: not any(node.said for node in nodes), "they are back")
        assert [etcd.joins_of(node.node_id) for node in nodes] == joins
        for _ in range(2):
            await in_thread(etcd.begin_anew)
            await until(lambda: any(node.said for node in nodes), "it is missed")
            await until(
                lambda: etcd.stamp() and not any(node.said for node in nodes), "it is whole"
            )
        assert [etcd.joins_of(node.node_id) for node in nodes] == [b"", b"", b""]
        assert [len(node.views) for node in nodes] == made


async def test_return_after_a_lost_lease_counts_as_another_join(etcd: Etcd) -> None:
    with CutProxy(etcd.endpoint) as proxy:
        nodes = Node(etcd, "a"), Node(etcd, "b"), Node(etcd, "c", proxy.endpoint)
        async with cluster(*nodes):
            proxy.cut()
            await until(lambda: nodes[0].names == "ab", "it is out")
            proxy.mend()
            await all_in(nodes)
            joins = [float(etcd.joins_of(node.node_id).split()[0]) for node in nodes]
            assert joins[:2] == [1.0, 1.0]
            assert joins[2] > 1.9


def test_flapping_daemon_starts_warns_and_joins_later(
    etcd: Etcd, make_cluster: MakeCluster
) -> None:
    etcd.put_joins_of("c", flaps(4 * TTL_S))
    nodes = with_etcd(make_cluster, etcd.endpoint, 3, start=False)
    for daemon in nodes.daemons:
        daemon.start()
    for daemon in nodes.daemons:
        daemon.wait_ready()
    assert "c has come and gone too often lately" in nodes[2].sentences()
    eventually(lambda: nodes[0].members() == ["a", "b"])
    keys = keys_of("of a flapping node", 16)
    pages = nodes[2].attach()
    assert set(pages.set(keys)) == {Status.draining}, "removals would not reach it"
    nodes.wait_complete()
    eventually(lambda: all(pages.set(keys)))
    eventually(lambda: nodes[0].attach().has(keys), 10, "its pages are found")
    assert "too often" not in nodes[2].sentences()
