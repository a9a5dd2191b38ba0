"""Operators' calls relayed to another member, and the refusals on the way."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

import grpc
import pytest
from harness.fake_daemon import FakeSource
from harness.loop_node import LoopNode, eventually, two_nodes

from peercached.admin.calls import CALLS, Refusal, operation_of
from peercached.peer.rpc.auth import Secret
from peercached.peer.server.relay import Relay
from peercached.proto import admin_pb2 as pb

SECRET = b"a secret of sixteen bytes"


def relay_of(node: LoopNode, source: FakeSource, authenticated: bool = True) -> Relay:
    relay = Relay(
        source,
        node.daemon.placement,
        node.daemon.peers,
        Secret(b"theirs" if authenticated else b""),
        None,
    )
    node.daemon.servicer._relay = relay
    return relay


async def refused(relay: Relay, node_id: str, method: str, packed: bytes = b"") -> Refusal:
    with pytest.raises(Refusal) as caught:
        await relay.ask(node_id, method, packed, 5.0)
    return caught.value


async def test_relay_reaches_the_named_member_and_returns_its_answer() -> None:
    async with two_nodes(secret=SECRET) as (a, b):
        here, there = FakeSource(), FakeSource()
        there.document = {"node": {"id": "b"}}
        there.unreached = ["c"]
        relay = relay_of(a, here)
        relay_of(b, there)
        reply = pb.StatusReply.FromString(await relay.ask("b", "Status", b"", 5.0))
        assert '"id":"b"' in reply.json
        request = pb.ClearRequest(namespace="n s").SerializeToString()
        cleared = pb.ClearReply.FromString(await relay.ask("b", "Clear", request, 5.0))
        assert list(cleared.unreached) == ["c"]
        assert there.asked == [("clear", "n s")]
        # A call to the node itself needs no relaying.
        await relay.ask("a", "Undrain", b"", 5.0)
        assert here.asked == [("undrain",)]


async def test_relayed_refusal_names_the_member_and_its_version() -> None:
    async with two_nodes(secret=SECRET) as (a, b):
        there = FakeSource()
        there.error = ValueError("the key is empty")
        relay = relay_of(a, FakeSource())
        relay_of(b, there)
        refusal = await refused(relay, "b", "Locate")
        assert refusal.code is grpc.StatusCode.INVALID_ARGUMENT
        assert refusal.details.startswith("b (peercached ")
        assert refusal.details.endswith("the key is empty")
        assert (await refused(relay, "b", "NoSuchCall")).code is grpc.StatusCode.UNIMPLEMENTED
        assert (await refused(relay, "b", "Clear", b"\xff")).code is (
            grpc.StatusCode.INVALID_ARGUMENT
        )
        refusal = await refused(relay, "c", "Status")
        assert refusal.details == "there is no member 'c': there are a, b"


async def test_without_authentication_members_may_look_and_not_steer() -> None:
    async with two_nodes() as (a, b):
        there = FakeSource()
        relay = relay_of(a, FakeSource(), authenticated=False)
        relay_of(b, there, authenticated=False)
        await relay.ask("b", "Status", b"", 5.0)
        for method in ("Clear", "Evict", "Drain", "Undrain", "Reload"):
            refusal = await refused(relay, "b", method)
            assert refusal.code is grpc.StatusCode.PERMISSION_DENIED
            assert "cluster_secret_file" in refusal.details
        assert there.asked == []


async def test_relay_reports_a_hung_member_without_suspecting_it() -> None:
    async with two_nodes(secret=SECRET) as (a, b):
        there = FakeSource()
        there.hangs = True
        relay = relay_of(a, FakeSource())
        relay_of(b, there)
        request = pb.LocateRequest(key=b"k").SerializeToString()
        with pytest.raises(Refusal, match="did not answer in time"):
            await relay.ask("b", "Locate", request, 0.2)
        # A slow operator's call is no reason to suspect the member.
        assert not any(node.suspect for node in a.daemon.placement.nodes.values())


async def test_a_flood_of_calls_is_bounded() -> None:
    async with two_nodes(secret=SECRET) as (a, b):
        there = FakeSource()
        there.hangs = True
        relay = relay_of(a, FakeSource())
        relay_of(b, there)
        request = pb.LocateRequest(key=b"k").SerializeToString()
        found = await asyncio.gather(
            *(relay.ask("b", "Locate", request, 1.0) for _ in range(20)), return_exceptions=True
        )
        busy = [r for r in found if isinstance(r, Refusal) and "busy" in r.details]
        assert len(busy) == 12


async def test_web_readers_share_one_call_a_second_and_leave_room_for_operators(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with two_nodes(secret=SECRET) as (a, b):
        there = FakeSource()
        calls = 0
        go_on = asyncio.Event()

        async def process() -> dict[str, Any]:
            nonlocal calls
            calls += 1
            await go_on.wait()
            raise ValueError("not now")

        monkeypatch.setattr(there, "process", process)
        relay = relay_of(a, FakeSource())
        relay_of(b, there)
        readers = [asyncio.ensure_future(relay.ask_for_web("b", "Process", 5.0)) for _ in range(50)]
        await asyncio.sleep(0)
        readers[0].cancel()  # the others still wait for its call
        await eventually(lambda: calls == 1)
        monkeypatch.setattr("peercached.peer.server.relay.ANSWERS_AT_ONCE_MAX", 1)
        await relay.ask("b", "Status", b"", 5.0)
        go_on.set()
        found = await asyncio.gather(*readers, return_exceptions=True)
        assert sum(isinstance(one, Refusal) for one in found) == 49
        with pytest.raises(Refusal, match="not now"):
            await relay.ask_for_web("b", "Process", 5.0)
        assert calls == 1
        monkeypatch.setattr("peercached.peer.server.relay.WEB_FRESH_S", 0.0)
        with pytest.raises(Refusal, match="not now"):
            await relay.ask_for_web("b", "Process", 5.0)
        assert calls == 2
        with pytest.raises(Refusal, match="there is no member"):
            await relay.ask_for_web("c", "Process", 5.0)


async def test_an_operation_takes_the_fields_of_each_admin_call() -> None:
    async with LoopNode("a") as a:
        for name, call in CALLS.items():
            operation = getattr(a.daemon.operations, operation_of(name))
            wanted = list(inspect.signature(operation).parameters)
            assert wanted == [field.name for field in call.input_type.fields], name
