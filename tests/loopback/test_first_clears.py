"""A process with the secret reports made-up clears through each message, to fill the epoch table.
It adds nothing before it is a member. Then its host has one share, under whatever node ids."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from harness.callers import HOST, SECRET, link_to, stranger
from harness.fake_engine import digest_of
from harness.loop_node import LoopNode, eventually

from peercached.directory import first_clears
from peercached.membership import Heartbeat, Member, NodeAddress, State
from peercached.peer.membership.embedded import wire as member_wire
from peercached.peer.rpc.client import PeerLink
from peercached.peer.rpc.failures import Refused
from peercached.proto import peer_pb2 as pb

MOST = 3
NAMES = (digest_of(f"made up {number}") for number in itertools.count())


def made_up() -> pb.NamespaceEpoch:
    return pb.NamespaceEpoch(namespace_id=next(NAMES), epoch=1)


def heartbeat(node_id: str, epochs: int, state: State = State.ALIVE) -> pb.HeartbeatRequest:
    own = NodeAddress(node_id, 5, HOST, 1, 2)
    beat = member_wire.heartbeat_message(Heartbeat(Member(own, state=state), 0), [])
    beat.epochs.extend(made_up() for _ in range(epochs))
    return beat


def removal() -> pb.RemoveRequest:
    request = pb.RemoveRequest(digests=digest_of("page"), epoch=made_up())
    request.id.incarnation, request.id.number = 7, 5  # of a process that is gone
    return request


WAYS: dict[str, Callable[[str], Any]] = {
    "RaiseEpoch": lambda _: pb.RaiseEpochRequest(epoch=made_up()),
    "Heartbeat": lambda node_id: heartbeat(node_id, MOST + 1),
    "Remove": lambda _: removal(),
}
each_way = pytest.mark.parametrize("method", WAYS)


async def claims(link: PeerLink, method: str, node_id: str, times: int) -> str:
    """Returns why the last refused one was refused."""
    refused = ""
    for _ in range(times):
        try:
            await link.call(method, WAYS[method](node_id), 5.0)
        except Refused as error:
            refused = error.details
    return refused


def is_member(node: LoopNode, node_id: str) -> bool:
    return node_id in node.members


@each_way
async def test_a_host_adds_no_more_than_its_share(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(first_clears, "FIRST_CLEARS_MAX", MOST)

    async with LoopNode("a", secret=SECRET) as node:
        refused = ""
        for node_id in ("b", "c", "d"):
            link = link_to(node, node_id=node_id)
            await link.call("Heartbeat", heartbeat(node_id, 0), 5.0)
            await eventually(partial(is_member, node, node_id))
            refused = await claims(link, method, node_id, MOST)
            await link.close()
        assert len(node.engine.epochs) == MOST
        assert method == "Heartbeat" or f"host {HOST} has cleared" in refused


@each_way
async def test_a_process_that_is_no_member_adds_nothing(method: str) -> None:
    async with LoopNode("a", secret=SECRET) as node:
        link = stranger(node, b"the cluster's own secret")
        if method == "Heartbeat":
            beat = heartbeat("stranger", MOST, State.LEFT)
            await link.call(method, beat, 5.0)
        else:
            assert "not in our view" in await claims(link, method, "stranger", MOST)
        await link.close()
        assert node.engine.epochs == {}
