"""Every call of the Peer service, made by a caller without permission."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import grpc
import grpc.aio
import pytest
from harness.callers import stranger
from harness.links import placement_of
from harness.loop_node import LoopNode

from peercached.membership import NodeAddress
from peercached.peer.rpc import wire
from peercached.peer.rpc.auth import (
    HANDSHAKE_KEY,
    NONCE_BYTES,
    PROTOCOL_VERSION,
    TOKEN_BYTES,
    AuthError,
    Claim,
    Secret,
)
from peercached.peer.rpc.client import OwnSide, PeerLink
from peercached.peer.rpc.failures import Refused
from peercached.proto import peer_pb2 as pb
from peercached.proto import peer_pb2_grpc

HOST = "127.0.0.1"
OTHER = pb.NodeAddress(node_id="b", incarnation=1, host="127.0.0.1", peer_port=1, data_port=2)
OTHER_MEMBER = pb.Member(address=OTHER, state=pb.ALIVE)


@pytest.mark.parametrize(
    ("method", "request_"),
    [
        ("Heartbeat", pb.HeartbeatRequest(sender=OTHER_MEMBER)),
        ("Probe", pb.ProbeRequest(target=OTHER)),
        ("Remove", pb.RemoveRequest()),
        ("EndRemovals", pb.EndRemovalsRequest()),
        ("MissedRemovals", pb.MissedRemovalsRequest()),
        ("ForgetNode", pb.ForgetNodeRequest()),
        ("Promote", pb.PromoteRequest()),
        ("Adopt", pb.AdoptRequest()),
        ("PinPages", pb.PinPagesRequest()),
        ("PageNames", pb.PageNamesRequest()),
        ("Hint", pb.HintRequest()),
        (
            "RaiseEpoch",
            pb.RaiseEpochRequest(epoch=pb.NamespaceEpoch(namespace_id=b"n" * 16, epoch=1)),
        ),
        ("Epochs", pb.EpochsRequest()),
        ("ConnectChannel", pb.ConnectChannelRequest()),
        ("Operate", pb.OperateRequest(method="Drain")),
        ("Summary", pb.SummaryRequest()),
        ("Overview", pb.OverviewRequest()),
        ("Ping", pb.PingRequest()),
    ],
)
async def test_no_call_is_answered_without_a_session(method: str, request_: Any) -> None:
    async with LoopNode("a") as node:
        link = stranger(node)
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await getattr(link.stub, method)(request_)
        assert error.value.code() is grpc.StatusCode.UNAUTHENTICATED
        assert node.daemon.interceptor.unauthenticated == 1
        assert node.engine.epochs == {}
        await link.close()


async def test_a_heartbeat_with_more_epochs_than_one_may_carry_is_refused() -> None:
    async with LoopNode("a") as node:
        link = stranger(node)
        await link.ready()
        epochs = [pb.NamespaceEpoch(namespace_id=bytes([n]) * 16, epoch=1) for n in range(65)]
        own = pb.NodeAddress(node_id="stranger", incarnation=5, host=HOST, peer_port=1, data_port=2)
        sender = pb.Member(address=own, state=pb.ALIVE)
        beat = pb.HeartbeatRequest(sender=sender, epochs=epochs)
        with pytest.raises(Refused, match="65 namespace epochs; 64 are the limit"):
            await link.call("Heartbeat", beat)
        assert node.engine.epochs == {}
        await link.close()


def test_every_call_of_the_service_is_in_these_tests() -> None:
    calls = {name for name in vars(peer_pb2_grpc.PeerServicer) if name[0].isupper()}
    (parameters,) = (mark.args[1] for mark in test_no_call_is_answered_without_a_session.pytestmark)
    assert calls == {name for name, _ in parameters} | {"Handshake"}


async def test_nobody_beats_for_another_node() -> None:
    async with LoopNode("a") as node:
        link = stranger(node)
        with pytest.raises(Refused, match="may not speak for b"):
            await link.call("Heartbeat", pb.HeartbeatRequest(sender=OTHER_MEMBER))
        assert node.members == ["a"]
        await link.close()


class Impostor(peer_pb2_grpc.PeerServicer):
    """A server that accepts every proof and invents its own answer."""

    def __init__(self, secret: Secret, proof_over: str = "server", token: int = TOKEN_BYTES):
        self.address = NodeAddress("b", 1, "127.0.0.1", 1, 2)
        self._secret = secret
        self._role = proof_over
        self._token = bytes(token)
        self.proofs: list[bytes] = []  # proofs that callers sent

    async def Handshake(self, _: Any, context: Any) -> Any:
        packed = dict(context.invocation_metadata())[HANDSHAKE_KEY]
        request = pb.HandshakeRequest.FromString(packed)
        self.proofs += [request.proof] if request.proof else []
        reply = pb.HandshakeReply(
            protocol=PROTOCOL_VERSION, server=wire.address_message(self.address)
        )
        reply.server_nonce = request.server_nonce or bytes(NONCE_BYTES)
        claim = Claim(self._role, self.address, request.nonce, reply.server_nonce)
        reply.proof = self._secret.proof(claim)
        reply.session = reply.read_token = self._token
        return reply


@asynccontextmanager
async def reached(impostor: Impostor, member: NodeAddress | None = None) -> AsyncIterator[PeerLink]:
    """`member` is the node that our view expects there; its port becomes the impostor's."""
    server: Any = grpc.aio.server()
    peer_pb2_grpc.add_PeerServicer_to_server(impostor, server)  # type: ignore[no-untyped-call]
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    own = NodeAddress("a", 1, "127.0.0.1", 1, 2)
    there = None if member is None else replace(member, peer_port=port)
    placement = placement_of(own)
    if there is not None:
        placement._by_endpoint[there.endpoint] = there
    link = PeerLink(f"127.0.0.1:{port}", OwnSide(placement, Secret(b"the secret"), None, 5.0))
    try:
        yield link
    finally:
        await link.close()
        await server.stop(0)


@pytest.mark.parametrize(
    ("impostor", "wrong"),
    [
        (Impostor(Secret(b"a guess")), "does not know the cluster secret"),
        (Impostor(Secret(b"the secret"), proof_over="caller"), "does not know the cluster secret"),
        (Impostor(Secret(b"the secret"), token=TOKEN_BYTES - 1), "gave no session"),
    ],
    ids=["without the secret", "with a reflected proof", "with a short session"],
)
async def test_a_server_that_proves_nothing_gets_no_call(impostor: Impostor, wrong: str) -> None:
    async with reached(impostor) as link:
        with pytest.raises(AuthError, match=wrong):
            await link.ready()
        assert link.metadata == ()
        assert link.identity is None


async def test_server_claiming_to_be_another_member_gets_no_proof() -> None:
    """The server could relay the proof, and so get a session in the caller's name."""
    impostor = Impostor(Secret(b"the secret"))
    async with reached(impostor, NodeAddress("c", 1, "127.0.0.1", 1, 2)) as link:
        with pytest.raises(AuthError, match=r"says it is b at 127\.0\.0\.1:1, and c is there"):
            await link.ready()
        assert impostor.proofs == []


async def test_a_server_that_knows_the_secret_gets_them() -> None:
    """Cross-check: with a valid proof the same server gets calls, so the tests above fail it for
    its proof alone."""
    async with reached(Impostor(Secret(b"the secret"))) as link:
        await link.ready()
        assert link.identity == NodeAddress("b", 1, "127.0.0.1", 1, 2)
