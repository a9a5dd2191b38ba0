"""Impostors: processes with the cluster's secret that claim to be one of its members."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from harness.cluster import Cluster, Daemon
from harness.fixtures import MakeCluster
from harness.links import link_from
from harness.pages import keys_of
from harness.secret_file import secret_file
from harness.waiting import eventually

from peercached.membership import (
    Gone,
    Heartbeat,
    HeartbeatAnswer,
    Member,
    NodeAddress,
    State,
    View,
    ViewUpdate,
)
from peercached.peer.membership.embedded import wire as member_wire
from peercached.peer.rpc.auth import Secret
from peercached.peer.rpc.client import PeerLink
from peercached.peer.rpc.failures import Refused
from peercached.peer.rpc.node_key import NodeKey
from peercached.proto import peer_pb2 as pb

KEYS = keys_of("of b", 64)
SECRET = os.urandom(32).hex().encode()


@pytest.fixture
def pair(make_cluster: MakeCluster, tmp_path: Path) -> Cluster:
    return make_cluster(2, cluster_secret_file=secret_file(tmp_path, SECRET))


def address_of(daemon: Daemon, key: bytes = b"") -> NodeAddress:
    """The address as any member's view shows it."""
    [member] = [
        m for m in daemon.status()["membership"]["members"] if m["node_id"] == daemon.node_id
    ]
    return NodeAddress(
        daemon.node_id,
        int(member["incarnation"], 16),
        daemon.host,
        daemon.meta_port,
        daemon.data_port,
        key=key,
    )


def as_impostor(
    at: Daemon, says: NodeAddress, key: NodeKey | None, work: Callable[[PeerLink], Any]
) -> Any:
    async def with_link() -> Any:
        secret = Secret(SECRET, key)
        link = link_from(says, at.address, secret, timeout_s=5.0)
        try:
            return await work(link)
        finally:
            await link.close()

    return asyncio.run(with_link())


def key_of(daemon: Daemon) -> NodeKey:
    return NodeKey.kept(str(daemon.state_dir), daemon.node_id)


def test_impostor_claiming_a_later_incarnation_does_not_replace_a_member(pair: Cluster) -> None:
    assert all(pair[1].attach().set(KEYS))
    own = NodeKey.make()
    b = address_of(pair[1])
    later = replace(b, incarnation=b.incarnation + (1 << 40), key=own.public)
    beat = member_wire.heartbeat_message(Heartbeat(Member(later), 0), [])

    async def beats(link: PeerLink) -> list[int]:
        return [(await link.call("Heartbeat", beat)).verdict for _ in range(20)]

    verdicts = as_impostor(pair[0], later, own, beats)
    assert pb.HeartbeatReply.ACCEPTED not in verdicts
    [member] = [m for m in pair[0].status()["membership"]["members"] if m["node_id"] == "b"]
    assert int(member["incarnation"], 16) == b.incarnation
    assert all(pair[0].attach().get(KEYS))


async def _tells(at: Daemon, change: Callable[[View], ViewUpdate]) -> None:
    """A member that is not a master tells `at` of a forged next view."""
    key = NodeKey.make()
    own = NodeAddress("zz", time.time_ns(), "127.0.0.9", 1, 1, 1 << 20, (), key.public)
    secret = Secret(SECRET, key)
    link = link_from(own, at.address, secret, timeout_s=5.0)

    async def beat(update: ViewUpdate | None = None) -> HeartbeatAnswer:
        message = member_wire.heartbeat_message(Heartbeat(Member(own), 0, update), [])
        return member_wire.answer_of(await link.call("Heartbeat", message))

    try:
        for _ in range(100):
            update = (await beat()).update
            if update is not None and any(m.node_id == "zz" for m in update.members):
                break
            await asyncio.sleep(0.05)
        assert update is not None
        await beat(change(View.of(update.number, update.members)))
    finally:
        await link.close()


def with_another_b(view: View, key: NodeKey) -> ViewUpdate:
    b = view.by_id["b"]
    address = replace(b.address, incarnation=b.address.incarnation + 1, key=key.public)
    others = [m for m in view.members if m is not b]
    forged = view.next([*others, Member(address, b.sequence + 1)])
    return ViewUpdate.whole(forged)


def without_b(view: View) -> ViewUpdate:
    b = view.by_id["b"]
    forged = view.next([m for m in view.members if m is not b])
    grave = Gone("b", b.address.incarnation, b.sequence + 1, State.LEFT, key=b.address.key)
    return ViewUpdate.whole(forged, gone=(grave,))


@pytest.fixture
def masters(make_cluster: MakeCluster, tmp_path: Path) -> Cluster:
    """All three are masters, so that a node that joins is not."""
    return make_cluster(3, cluster_secret_file=secret_file(tmp_path, SECRET))


def test_view_with_a_forged_member_key_does_not_admit_the_impostor(masters: Cluster) -> None:
    assert all(masters[1].attach().set(KEYS))
    key = NodeKey.make()
    later = replace(address_of(masters[1]), key=key.public)
    later = replace(later, incarnation=later.incarnation + 1)
    message = member_wire.heartbeat_message(Heartbeat(Member(later, 1000), 0), [])

    async def beats(link: PeerLink) -> list[int]:
        return [(await link.call("Heartbeat", message)).verdict for _ in range(20)]

    asyncio.run(_tells(masters[0], lambda view: with_another_b(view, key)))
    verdicts = as_impostor(masters[0], later, key, beats)
    assert pb.HeartbeatReply.ACCEPTED not in verdicts
    eventually(lambda: all(masters[2].attach().get(KEYS)), 20)
    assert address_of(masters[1]).incarnation == later.incarnation - 1


def test_forged_death_report_does_not_remove_a_live_member(masters: Cluster) -> None:
    assert all(masters[1].attach().set(KEYS))
    asyncio.run(_tells(masters[0], without_b))
    eventually(lambda: "b" in masters[0].connected_members(), 20)
    eventually(lambda: all(masters[2].attach().get(KEYS)), 20)


def test_nobody_beats_with_a_key_that_is_not_its_own(pair: Cluster) -> None:
    own = NodeKey.make()
    c = NodeAddress("c", 7, "127.0.0.3", 1, 2, key=own.public)
    beat = member_wire.heartbeat_message(
        Heartbeat(Member(replace(c, key=NodeKey.make().public)), 0), []
    )
    with pytest.raises(Refused, match="another key than its own"):
        as_impostor(pair[0], c, own, lambda link: link.call("Heartbeat", beat))


def test_node_with_lost_key_rejoins_after_its_former_start_died(pair: Cluster) -> None:
    before = key_of(pair[1]).public
    pair[1].kill()
    (pair[1].state_dir / "identity-b.key").unlink()
    pair.start_again(pair[1])
    assert key_of(pair[1]).public != before
    eventually(lambda: "b" in pair[0].connected_members())
