"""Strangers at the meta port of a whole daemon: it refuses, counts and logs them."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import grpc
import grpc.aio
import pytest
from harness.callers import HOST, SECRET, link_to, security
from harness.clock import seconds
from harness.loop_node import LoopNode, eventually

from peercached.membership import NodeAddress
from peercached.peer.rpc import connection_limits, wire
from peercached.peer.rpc.auth import (
    HANDSHAKE_KEY,
    NONCE_BYTES,
    PROTOCOL_VERSION,
    AuthError,
    Claim,
    Secret,
)
from peercached.peer.rpc.client import PeerLink
from peercached.proto import peer_pb2 as pb


def open_call(link: PeerLink, method: str, metadata: Any = ()) -> Any:
    """Starts a call and never sends its message."""
    channel: Any = link._channel  # grpc's stubs cannot start a call without a message
    return channel.stream_unary(f"/peercached.peer.v1.Peer/{method}")(metadata=metadata)


def header_of(request: pb.HandshakeRequest) -> Any:
    return ((HANDSHAKE_KEY, request.SerializeToString()),)


async def shake(link: PeerLink, request: pb.HandshakeRequest) -> pb.HandshakeReply:
    reply: pb.HandshakeReply = await link.stub.Handshake(
        pb.HandshakeRequest(), timeout=seconds(2), metadata=header_of(request)
    )
    return reply


async def test_a_foreign_secret_is_refused_counted_and_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with LoopNode("a", secret=SECRET) as node:
        link = link_to(node, secret=b"another cluster's secret")
        with pytest.raises(AuthError, match="does not know the cluster secret"):
            await link.ready()
        await link.close()
        assert security(node)["refused_handshakes"] == 1
        assert node.engine.readers == {}
        assert f"handshakes were refused in the last hour. The last caller was {HOST}: b at " in (
            node.sentences()
        )
    assert f"refused a handshake from {HOST}: b at " in caplog.text


async def test_a_call_without_a_session_ends_at_its_headers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with LoopNode("a", secret=SECRET) as node:
        link = link_to(node)
        # The caller never sends its message, so a server that waited for it would never answer.
        call = open_call(link, "Promote")
        assert await asyncio.wait_for(call.code(), seconds(5)) is grpc.StatusCode.UNAUTHENTICATED
        await link.close()
        assert security(node)["unauthenticated_calls"] == 1
    assert f"refused a call from {HOST}: it has no session" in caplog.text


async def test_a_replayed_handshake_gets_nothing() -> None:
    async with LoopNode("a", secret=SECRET) as node:
        link = link_to(node)
        own = NodeAddress("b", 5, HOST, 1, 2)
        nonce = bytes(NONCE_BYTES)
        first = pb.HandshakeRequest(
            protocol=PROTOCOL_VERSION, caller=wire.address_message(own), nonce=nonce
        )
        begun = await shake(link, first)
        second = pb.HandshakeRequest(
            protocol=PROTOCOL_VERSION,
            caller=wire.address_message(own),
            nonce=nonce,
            server_nonce=begun.server_nonce,
            proof=Secret(SECRET).proof(Claim("caller", own, nonce, begun.server_nonce)),
        )
        reply = await shake(link, second)
        assert len(reply.session) == 32
        with pytest.raises(grpc.aio.AioRpcError, match="was not begun here"):
            await shake(link, second)
        # A current nonce does not help, because the proof covers the old one.
        again = await shake(link, first)
        second.server_nonce = again.server_nonce
        with pytest.raises(grpc.aio.AioRpcError, match="does not know the cluster secret"):
            await shake(link, second)
        await link.close()


async def test_no_message_of_a_handshake_is_read() -> None:
    async with LoopNode("a", secret=SECRET) as node:
        link = link_to(node)
        hello = pb.HandshakeRequest(protocol=PROTOCOL_VERSION, nonce=bytes(NONCE_BYTES))
        for headers, code in (
            (header_of(hello), grpc.StatusCode.OK),
            (((HANDSHAKE_KEY, b"\xff"),), grpc.StatusCode.INVALID_ARGUMENT),
            ((), grpc.StatusCode.FAILED_PRECONDITION),  # as a message: protocol 13 and older
        ):
            call = open_call(link, "Handshake", headers)
            assert await asyncio.wait_for(call.code(), seconds(5)) is code
        await link.close()


async def test_connections_that_prove_nothing_are_shut_and_a_peers_stays(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(connection_limits, "PROOF_S", seconds(0.4))
    monkeypatch.setattr(connection_limits, "LOOK_S", seconds(0.1))

    async with LoopNode("a", secret=SECRET) as node:
        peer = link_to(node)
        await peer.ready()
        reader, writer = await asyncio.open_connection(HOST, node.config.meta_port)
        # An HTTP/2 preface, then silence. gRPC itself would keep such a connection for ever.
        writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))
        while await asyncio.wait_for(reader.read(4096), seconds(10)):
            pass
        writer.close()
        assert security(node)["meta_shut_unproven"] == 1
        assert peer._channel.get_state() is grpc.ChannelConnectivity.READY
        assert (await peer.call("Ping", pb.PingRequest())).server.node_id == "a"
        await peer.close()
    assert "did not authenticate" not in caplog.text, "a peer is at that address, too"


async def test_a_crowd_of_connections_is_shut_and_peers_still_get_in(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(connection_limits, "LOOK_S", seconds(0.1))

    async with LoopNode("a", secret=SECRET) as node:
        peer = link_to(node)
        await peer.ready()
        crowd = [socket.create_connection((HOST, node.config.meta_port)) for _ in range(200)]
        await eventually(lambda: security(node)["meta_connections_unproven"] <= 32)
        await eventually(lambda: security(node)["meta_shut_crowd"] >= 200 - 33)
        late = link_to(node, node_id="c")
        await late.ready()
        assert peer._channel.get_state() is grpc.ChannelConnectivity.READY
        for link in (peer, late):
            await link.close()
        for one in crowd:
            one.close()
    assert "too many unauthenticated connections" in caplog.text
