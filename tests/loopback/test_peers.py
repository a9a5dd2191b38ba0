"""Daemons that call each other over 127.0.0.1, each with the fake data plane."""

from __future__ import annotations

import socket
import time
from dataclasses import fields, replace
from typing import Any

import grpc
import grpc.aio
import pytest
from harness.callers import stranger
from harness.loop_node import LoopNode, eventually, free_port, in_sync

from peercached.admin.status import Located, Status
from peercached.membership import Member, NodeAddress
from peercached.membership.view import mark_of
from peercached.peer.membership.this_node import new_incarnation
from peercached.peer.rpc.auth import HANDSHAKE_KEY, SESSION_KEY, AuthError, Claim, Secret
from peercached.peer.rpc.failures import Disconnected, Refused, Unreachable
from peercached.proto import peer_pb2 as pb
from peercached.proto import peer_pb2_grpc
from peercached.start_stop import StartRefused


async def test_pages_set_on_one_node_are_found_on_the_others() -> None:
    async with (
        LoopNode("a") as first,
        LoopNode("b", heads=[first]) as second,
        LoopNode("c", heads=[first]) as third,
    ):
        await in_sync(first, second, third)
        await first.set("x", "y")
        await second.set("y", "z")
        expected = {("x", "a"), ("y", "a"), ("y", "b"), ("z", "b")}
        for node in (first, second, third):
            assert await node.find("x", "y", "z", "nowhere") == expected


async def test_members_in_one_view_get_each_others_data_endpoints() -> None:
    async with LoopNode("a") as first, LoopNode("b", heads=[first]) as second:
        await in_sync(first, second)
        await eventually(lambda: first.engine.connected and second.engine.connected)
        ((host, port, token, incarnation, offers),) = first.engine.connected.values()
        assert (host, port, offers) == ("127.0.0.1", 7, {})
        assert incarnation == second.daemon.placement.own.address.incarnation
        assert second.engine.readers == {
            ("a", first.daemon.placement.own.address.incarnation): token
        }


async def test_each_new_session_opens_the_data_port_anew() -> None:
    async with LoopNode("a") as reader, LoopNode("b", heads=[reader]) as holder:
        await in_sync(reader, holder)
        await eventually(lambda: reader.engine.connected)
        ((_, _, before, _, _),) = reader.engine.connected.values()
        holder.daemon.sessions.drop(reader.daemon.placement.own.address)
        link = reader.daemon.peers.link(holder.daemon.placement.own.address.endpoint)
        await link.call("Ping", pb.PingRequest())
        ((_, _, token, _, _),) = reader.engine.connected.values()
        assert token != before
        assert set(holder.engine.readers.values()) == {token}


async def test_node_with_wrong_secret_is_kept_out_and_reported_on_both_sides() -> None:
    async with (
        LoopNode("a", secret=b"the right secret") as head,
        LoopNode("b", heads=[head], secret=b"another secret!!") as other,
    ):
        assert head.members == ["a"]
        assert other.members == ["b"]
        # The health sentence has the reason of the last attempt.
        await eventually(lambda: "cluster secret" in other.sentences())
        assert "No head accepts this node" in other.sentences()
        assert "firewall" not in other.remedies["no_head"], "the head answers"
        assert "handshakes were refused" in head.sentences()
        await other.set("x")
        assert await other.find("x") == {("x", "b")}, "it serves its own pages"
        assert "not authenticated" not in head.sentences()
        assert "name two or three hosts" in head.remedies["alone"]


MORE: dict[type, Any] = {int: 1, str: "x", bytes: b"k"}


def test_a_proof_and_a_mark_hold_for_the_whole_address_they_were_made_for() -> None:
    secret, nonces = Secret(b"a secret"), (b"n" * 16, b"s" * 16)
    address = NodeAddress("a", 1, "h", 1, 2, 3, (("rdma", b"x"),))
    proof = secret.proof(Claim("caller", address, *nonces))
    secret.check(proof, Claim("caller", address, *nonces))
    for field in fields(address):
        old = getattr(address, field.name)
        new: Any = (("rdma", b"y"),) if field.name == "transports" else old + MORE[type(old)]
        other = replace(address, **{field.name: new})
        assert mark_of([Member(other)]) != mark_of([Member(address)])
        with pytest.raises(AuthError):
            secret.check(proof, Claim("caller", other, *nonces))


async def test_a_server_without_the_secret_gets_no_heartbeat() -> None:
    async with LoopNode("a", secret=b"") as head:
        link = stranger(head, b"a secret")
        with pytest.raises(Exception, match="cluster secret"):
            await link.call("Ping", pb.PingRequest())
        await link.close()


async def test_malformed_packed_bytes_are_refused_with_the_value() -> None:
    async with LoopNode("a") as node:
        link = stranger(node)
        for method, request in (
            ("Promote", pb.PromoteRequest(digests=b"x" * 17)),
            ("PinPages", pb.PinPagesRequest(digests=b"x" * 17)),
        ):
            with pytest.raises(Refused, match="17 bytes is not a multiple of 16") as error:
                await link.call(method, request)
            assert error.value.code is grpc.StatusCode.INVALID_ARGUMENT
        epoch = pb.NamespaceEpoch(namespace_id=b"short", epoch=1)
        with pytest.raises(Refused, match="namespace id of 5 bytes"):
            await link.call("RaiseEpoch", pb.RaiseEpochRequest(epoch=epoch))
        assert node.daemon.refusals.malformed == 3
        await link.close()


async def test_unparseable_calls_are_refused_with_the_reason(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with LoopNode("a") as node:
        link = stranger(node)
        await link.ready()
        channel: Any = link._channel  # grpc's stubs send only well-formed messages
        calls = [name for name in vars(peer_pb2_grpc.PeerServicer) if name[0].isupper()]
        metadata = (*link.metadata, (HANDSHAKE_KEY, b"\xff" * 9))
        for name in calls:
            call = channel.stream_stream(f"/peercached.peer.v1.Peer/{name}")(
                iter([b"\xff" * 9]), metadata=metadata
            )
            assert await call.code() is grpc.StatusCode.INVALID_ARGUMENT, name
            assert "9 bytes that are no message of this call" in await call.details()
        assert node.daemon.refusals.malformed == len(calls)
        await link.call("Ping", pb.PingRequest())
        await link.close()
    assert "Traceback" not in caplog.text


async def test_nobody_speaks_for_another_node() -> None:
    async with LoopNode("a") as node:
        link = stranger(node)
        with pytest.raises(Refused, match="may not speak for b"):
            address = pb.NodeAddress(node_id="b", incarnation=1, host="h", peer_port=1, data_port=2)
            last_word = pb.Member(address=address, state=pb.LEFT)
            await link.call("Heartbeat", pb.HeartbeatRequest(sender=last_word))
        await link.close()


async def test_calls_without_a_session_are_refused_and_a_client_shakes_hands_again() -> None:
    async with LoopNode("a") as node:
        link = stranger(node)
        for metadata in ((), ((SESSION_KEY, "00" * 32),)):
            with pytest.raises(grpc.aio.AioRpcError) as error:
                await link.stub.Ping(pb.PingRequest(), metadata=metadata)
            assert error.value.code() is grpc.StatusCode.UNAUTHENTICATED
        await link.call("Ping", pb.PingRequest())
        before = link.metadata
        node.daemon.sessions.drop(NodeAddress("stranger", 5, "", 0, 0))
        await link.call("Ping", pb.PingRequest())
        assert link.metadata != before
        await link.close()


async def test_restart_drops_old_records_and_fails_calls_to_the_old_process() -> None:
    async with LoopNode("a", member_ttl_s=5) as first:
        async with LoopNode("b", heads=[first], member_ttl_s=5) as second:
            await in_sync(first, second)
            await second.set("old")
            assert await first.find("old") == {("old", "b")}
            old = second.daemon.placement.own.address
        async with LoopNode("b", second.port, [first], member_ttl_s=5) as second:
            await in_sync(first, second)
            assert await first.find("old") == set()
            await second.set("new")
            await first.set("mine")
            for node in (first, second):
                assert await node.find("old", "new", "mine") == {("new", "b"), ("mine", "a")}
            link = first.daemon.peers.link(old.endpoint)
            with pytest.raises(Unreachable, match="has restarted"):
                await link.call("Ping", pb.PingRequest(), expect=old)


async def test_second_daemon_with_the_same_node_id_refuses_naming_the_first() -> None:
    async with (
        LoopNode("a", member_ttl_s=5) as head,
        LoopNode("b", heads=[head], member_ttl_s=5) as first,
    ):
        await in_sync(head, first)
        with pytest.raises(StartRefused, match=f"127.0.0.1:{first.port}"):
            async with LoopNode("b", heads=[head], member_ttl_s=5):
                pass
        await in_sync(head, first)


async def test_a_taken_port_is_named_with_the_remedy() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=f"127.0.0.1:{port}.*meta_port"):
            async with LoopNode("a", port, [port]):
                pass


async def test_without_a_head_a_node_serves_alone_says_so_and_joins_later() -> None:
    a, b = free_port(), free_port()
    async with LoopNode("b", b, [a]) as node:
        assert "No head can be reached" in node.sentences()
        assert "firewall" in node.remedies["no_head"]
        assert "serves only its own pages" in node.sentences()
        await node.set("x")
        assert await node.find("x") == {("x", "b")}
        async with LoopNode("a", a, [a]) as head:
            await in_sync(head, node)
            assert await head.find("x") == {("x", "b")}, "set while alone, found by all"
            assert "No head" not in node.sentences()
            assert "alone" not in head.remedies


async def test_a_node_on_its_own_opens_no_port() -> None:
    async with LoopNode("a", heads=[]) as node:
        await node.set("x")
        assert await node.find("x") == {("x", "a")}
        assert await node.ask("clear", 0, b"model") == b""
        with socket.socket() as probe:
            assert probe.connect_ex(("127.0.0.1", node.port)) != 0


async def test_a_silent_peer_that_calls_is_asked_at_once() -> None:
    async with LoopNode("a") as first, LoopNode("b", heads=[first]) as second:
        await in_sync(first, second)
        failures = first.daemon.failures
        (peer,) = [
            n for n in first.daemon.placement.nodes.values() if n is not first.daemon.placement.own
        ]
        failures.failed(peer, Disconnected("silent"))
        (case,) = failures.suspects._cases.values()
        failures.suspects.silent(peer, time.monotonic())
        case.ping_at += 1000.0
        failures._schedule()
        await eventually(lambda: not peer.suspect)  # after b's next heartbeat


async def test_nothing_is_kept_for_a_node_that_has_left() -> None:
    async with LoopNode("a") as head:
        async with LoopNode("b", heads=[head]) as other:
            await in_sync(head, other)
            assert f"127.0.0.1:{other.port}" in head.daemon.peers._links
        await eventually(lambda: head.members == ["a"])
        assert f"127.0.0.1:{other.port}" not in head.daemon.peers._links
        assert head.engine.readers == {}


async def test_links_to_heads_that_are_no_members_are_kept() -> None:
    a, nobody = free_port(), free_port()
    async with LoopNode("a", a, [a, nobody]) as node:
        peers = node.daemon.peers
        await eventually(lambda: f"127.0.0.1:{nobody}" in peers._links)
        link = peers.link(f"127.0.0.1:{nobody}")
        node.daemon.reactions.apply(node.daemon.placement.view)
        assert peers.link(f"127.0.0.1:{nobody}") is link


async def test_status_and_locate_fill_their_documents() -> None:
    async with LoopNode("a") as first, LoopNode("b", heads=[first]) as second:
        await in_sync(first, second)
        page = first.engine.digest("model", b"key")
        first.engine.set_page(page, length=4096)
        status = Status.model_validate(second.daemon.status.document())
        assert [m.node_id for m in status.membership.members] == ["a", "b"]
        assert [(one.node_id, one.state) for one in status.followers] == [("a", "live")]
        assert any("not authenticated" in h.sentence for h in status.health)
        located = Located.model_validate(
            dict(await second.daemon.operations.locate("model", b"key"))
        )
        assert {o.node_id for o in located.owners} == {"a", "b"}
        assert all(o.answered for o in located.owners)
        assert [(h.node_id, h.length, h.resident) for h in located.holders] == [("a", 4096, True)]
        with pytest.raises(ValueError, match="empty key"):
            await second.daemon.operations.locate("model", b"")


def test_incarnations_grow_and_are_never_zero() -> None:
    starts = [new_incarnation() for _ in range(100)]
    assert all(0 < start < 2**63 for start in starts)
    assert starts[-1] > starts[0]
