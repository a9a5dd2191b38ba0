"""A member with the secret reports made-up clears through each message, to fill the epoch table."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import grpc.aio
import pytest
from harness.callers import HOST, link_to, with_node
from harness.fake_engine import digest_of
from harness.loop_node import LoopNode

from peercached.directory import first_clears
from peercached.membership import NodeAddress
from peercached.peer.rpc import wire
from peercached.peer.rpc.failures import Refused
from peercached.proto import peer_pb2 as pb

MOST = 3
NAMES = (digest_of(f"made up {number}") for number in itertools.count())


def made_up() -> pb.NamespaceEpoch:
    return pb.NamespaceEpoch(namespace_id=next(NAMES), epoch=1)


def heartbeat() -> pb.HeartbeatRequest:
    own = wire.address_message(NodeAddress("b", 5, HOST, 1, 2))
    sender = pb.Member(address=own, sequence=1, state=pb.ALIVE)
    return pb.HeartbeatRequest(sender=sender, epochs=[made_up() for _ in range(MOST + 1)])


def removal() -> pb.RemoveRequest:
    request = pb.RemoveRequest(digests=digest_of("page"), epoch=made_up())
    request.id.incarnation = request.id.number = 5
    return request


@pytest.mark.parametrize(
    ("method", "request_of"),
    [
        ("RaiseEpoch", lambda: pb.RaiseEpochRequest(epoch=made_up())),
        ("Heartbeat", heartbeat),
        ("Remove", removal),
    ],
)
def test_a_member_adds_no_more_than_its_share(
    method: str, request_of: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(first_clears, "FIRST_CLEARS_MAX", MOST)

    async def claim(node: LoopNode) -> None:
        link = link_to(node)
        refused = ""
        for _ in range(2 * MOST):
            try:
                await link.call(method, request_of(), 5.0)
            except Refused as error:
                assert error.code is grpc.StatusCode.INVALID_ARGUMENT
                refused = error.details
        await link.close()
        assert len(node.engine.epochs) == MOST
        assert method == "Heartbeat" or "node b has cleared" in refused

    with_node(claim)
