"""RDMA channels between daemons: who gets one, and that every request is answered exactly once."""

from __future__ import annotations

import asyncio
import struct
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import grpc.aio
import pytest
from harness.callers import stranger
from harness.channel_ends import end_of
from harness.clock import seconds
from harness.loop_node import LoopNode, eventually, in_sync, two_nodes

from peercached.admin.status import Status
from peercached.membership import Heartbeat, Member, NodeAddress, State
from peercached.peer.channels.accepts import ACCEPTS_PER_PEER_MAX
from peercached.peer.channels.connects import CONNECTS_PER_PEER_MAX
from peercached.peer.rpc.failures import Refused
from peercached.proto import peer_pb2 as pb

END = end_of(17, 4711)


def answer_of(node: LoopNode, qpn: int = 18) -> bytes:
    """A packed ChannelAnswer for a pool of one chunk."""
    incarnation = node.daemon.placement.own.address.incarnation
    return end_of(qpn, 4712, rail=1) + struct.pack(
        "<QQQQII", incarnation, 1 << 40, 4096, 4096, 1, 77
    )


def wish(reader: LoopNode, holder: LoopNode, connect_id: int, closed: bytes = b"") -> None:
    node = reader.daemon.placement.find(
        holder.config.node_id, holder.daemon.placement.own.address.incarnation
    )
    assert node is not None
    reader.engine.post("connect_channel", node.index, connect_id, END, closed)


def why_not(node: LoopNode, connect_id: int) -> str:
    why = node.engine.channels[connect_id]
    assert isinstance(why, str)
    return why


def hold_accepts(holder: LoopNode) -> threading.Event:
    """The holder accepts channels once the event is set."""
    go_on = threading.Event()

    def accept(*_: Any) -> bytes:
        assert go_on.wait(seconds(20))
        return answer_of(holder)

    holder.engine.accept_channel = accept
    return go_on


async def test_connect_gives_reader_the_holders_end_and_names_the_reader() -> None:
    async with two_nodes() as (reader, holder):
        asked: list[tuple[Any, ...]] = []

        def accept(*given: Any) -> bytes:
            asked.append(given)
            return answer_of(holder)

        holder.engine.accept_channel = accept
        closed = struct.pack("<2I", 3, 4)
        wish(reader, holder, 1, closed)
        await eventually(lambda: 1 in reader.engine.channels)
        assert reader.engine.channels[1] == answer_of(holder)
        own = reader.daemon.placement.own.address
        assert asked == [("a", own.incarnation, END, closed)]


async def test_members_exchange_their_transports() -> None:
    first = LoopNode("a", transports={"rdma": b"its part", "ucx": b""})
    async with first, LoopNode("b", heads=[first], transports={"ucx": b""}) as second:
        await in_sync(first, second)
        await eventually(lambda: first.engine.connected and second.engine.connected)
        told = [entry[-1] for node in (first, second) for entry in node.engine.connected.values()]
        assert told == [{"ucx": b""}, {"rdma": b"its part", "ucx": b""}]
        members = Status.model_validate(second.daemon.status.document()).membership.members
        assert [m.transports for m in members] == [["rdma", "ucx"], ["ucx"]]
        assert [m.protocol for m in members] == ["ucx", ""]


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (RuntimeError("the device has no more queue pairs"), "no more queue pairs"),
        (ValueError("rail 9 is none"), "rail 9 is none"),
    ],
)
async def test_holder_refusing_a_channel_gives_the_reason_and_is_not_suspected(
    error: Exception, said: str
) -> None:
    async with two_nodes() as (reader, holder):

        def accept(*_: Any) -> bytes:
            raise error

        holder.engine.accept_channel = accept
        wish(reader, holder, 1)
        await eventually(lambda: 1 in reader.engine.channels)
        assert said in why_not(reader, 1)
        assert not reader.engine.suspected
        assert (holder.daemon.accepts.refused, reader.daemon.connects.refused) == (1, 1)


async def test_nonmember_gets_no_channel_with_or_without_a_session() -> None:
    async with LoopNode("a") as holder:
        holder.engine.accept_channel = lambda *_: answer_of(holder)
        link = stranger(holder)
        request = pb.ConnectChannelRequest(end=END)
        with pytest.raises(Refused, match=r"stranger .* is not in view") as refused:
            await link.call("ConnectChannel", request)
        assert refused.value.code is grpc.StatusCode.FAILED_PRECONDITION
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await link.stub.ConnectChannel(request, metadata=())
        assert error.value.code() is grpc.StatusCode.UNAUTHENTICATED
        assert holder.daemon.accepts.accepted == 0
        await link.close()


async def test_a_member_that_left_while_its_channel_was_made_loses_it() -> None:
    async with two_nodes() as (holder, reader):
        expelled: list[tuple[str, int]] = []
        begun, go_on = threading.Event(), threading.Event()

        def accept(*_: Any) -> bytes:
            begun.set()
            assert go_on.wait(seconds(10))
            expelled.clear()  # the expel at its departure came too early for this channel
            return answer_of(holder)

        holder.engine.accept_channel = accept
        holder.engine.expelled = expelled
        own = reader.daemon.placement.own.address
        wish(reader, holder, 1)
        await eventually(begun.is_set)
        last_word = Member(own, 1, State.LEFT)
        holder.daemon.node.heartbeat(Heartbeat(last_word, 0), [])
        await eventually(lambda: (own.node_id, own.incarnation) in expelled)
        go_on.set()
        await eventually(lambda: 1 in reader.engine.channels)
        assert "no longer in the view" in why_not(reader, 1)
        assert expelled == [(own.node_id, own.incarnation)]


async def test_connect_to_a_departed_node_or_self_is_refused() -> None:
    async with LoopNode("a") as node:
        for connect_id, index in ((1, 0), (2, 99)):
            node.engine.post("connect_channel", index, connect_id, END, b"")
        await eventually(lambda: len(node.engine.channels) == 2)
        assert "no longer in the view" in why_not(node, 1)


async def test_holder_with_hung_device_costs_the_rpc_timeout_without_suspicion() -> None:
    async with LoopNode("a", rpc_timeout_ms=200) as reader, LoopNode("b", heads=[reader]) as holder:
        await in_sync(reader, holder)
        go_on = hold_accepts(holder)
        for connect_id in range(2 * CONNECTS_PER_PEER_MAX):  # too many to run at once
            wish(reader, holder, connect_id)
        # The timeout ends them long before the holder would.
        await eventually(lambda: len(reader.engine.channels) == 2 * CONNECTS_PER_PEER_MAX)
        assert all("in time" in why_not(reader, i) for i in reader.engine.channels)
        assert "is suspect" not in reader.sentences(), "all else of it is well"
        go_on.set()


async def test_reader_limits_pending_connects_per_holder_and_completes_all() -> None:
    async with two_nodes() as (reader, holder):
        lock, at_once = threading.Lock(), [0, 0]  # [now, maximum]
        go_on = threading.Event()

        def accept(*_: Any) -> bytes:
            with lock:
                at_once[0] += 1
                at_once[1] = max(at_once)
            assert go_on.wait(seconds(20))
            with lock:
                at_once[0] -= 1
            return answer_of(holder)

        holder.engine.accept_channel = accept
        wishes = 5 * CONNECTS_PER_PEER_MAX
        for connect_id in range(wishes):
            wish(reader, holder, connect_id)
        await eventually(
            lambda: sum(holder.daemon.accepts._asked.values()) == CONNECTS_PER_PEER_MAX
        )
        go_on.set()
        await eventually(lambda: len(reader.engine.channels) == wishes)
        assert all(each == answer_of(holder) for each in reader.engine.channels.values())
        assert at_once[1] == 1


async def test_one_peer_cannot_keep_a_holder_busy_with_channels() -> None:
    async with two_nodes() as (reader, holder):
        go_on = hold_accepts(holder)
        own: NodeAddress = reader.daemon.placement.own.address
        accepts = holder.daemon.accepts
        try:
            more = 3
            works = [
                asyncio.ensure_future(accepts.accept(own, END, b""))
                for _ in range(ACCEPTS_PER_PEER_MAX + more)
            ]
            await eventually(lambda: accepts.refused == more)
            request = pb.ConnectChannelRequest(end=END)
            link = reader.daemon.peers.link(holder.daemon.placement.own.address.endpoint)
            with pytest.raises(Refused, match="are being made") as error:
                await link.call("ConnectChannel", request)
            assert error.value.code is grpc.StatusCode.RESOURCE_EXHAUSTED
        finally:
            go_on.set()
        await asyncio.gather(*works, return_exceptions=True)
        assert await accepts.accept(own, END, b"") == answer_of(holder)


async def test_hung_connect_does_not_block_the_default_executor() -> None:
    async with two_nodes() as (reader, holder):
        begun, go_on = threading.Event(), threading.Event()
        answer = reader.engine.channel_connected

        def connected(connect_id: int, packed: bytes) -> None:
            begun.set()
            assert go_on.wait(seconds(20))
            answer(connect_id, packed)

        reader.engine.channel_connected = connected
        holder.engine.accept_channel = lambda *_: answer_of(holder)
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        wish(reader, holder, 1)
        await eventually(begun.is_set)
        assert await asyncio.wait_for(asyncio.to_thread(lambda: 1), seconds(5)) == 1
        go_on.set()
        await eventually(lambda: 1 in reader.engine.channels)


async def test_pending_connects_are_refused_when_the_daemon_stops() -> None:
    async with LoopNode("b") as holder:
        go_on = hold_accepts(holder)
        async with LoopNode("a", heads=[holder]) as reader:
            await in_sync(reader, holder)
            wish(reader, holder, 1)
            await eventually(lambda: reader.daemon.connects._tasks)
            wish(reader, holder, 2)
            reader.daemon.events.drain()  # not started yet when the daemon cancels it
            reader.daemon.events.stop()
            await eventually(lambda: len(reader.engine.channels) == 2)
            assert why_not(reader, 1) == why_not(reader, 2) == "this daemon stops"
        go_on.set()
