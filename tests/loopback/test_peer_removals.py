"""Removals and clears on two daemons: complete, or said to be incomplete."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest
from harness.fake_engine import digest_of, each
from harness.loop_node import LoopNode, eventually, free_port, in_sync

from peercache_client import Status
from peercached.peer.removals.member import id_message, remove_request
from peercached.proto import peer_pb2 as pb
from peercached.removals.ledger import RemovalId


async def test_remove_reaches_all_holders_and_clear_all_members() -> None:
    async with LoopNode("a") as first, LoopNode("b", heads=[first]) as second:
        await in_sync(first, second)
        await first.set("x")
        await second.set("x", "y")
        in_epoch_0 = (bytes(16), 0)  # for an unnamed namespace
        answer = await first.ask("remove", *in_epoch_0, b"".join(map(digest_of, "xyz")))
        status, held, text = answer
        assert (status, set(each(held)), text) == (Status.ok, {digest_of("x"), digest_of("y")}, "")
        assert await second.find("x", "y") == set()
        assert not first.engine.removing and not second.engine.removing, "it is over"

        namespace_id = first.engine.namespace_id("model")
        second.engine.epochs[namespace_id] = 7
        assert await first.ask("clear", 0, b"model") == b""
        assert first.engine.epochs[namespace_id] == second.engine.epochs[namespace_id] > 7
        await second.daemon.server.stop(0)
        assert await first.daemon.operations.clear("model") == {"unreached": ["b"]}


async def test_removal_at_a_node_that_has_left_is_not_confirmed() -> None:
    """Everybody that it knew has ended, so nobody seems to be missing."""

    a, b = free_port(), free_port()
    async with contextlib.AsyncExitStack() as stack:
        left = await stack.enter_async_context(LoopNode("a", a, [a, b]))
        async with LoopNode("b", b, [a, b]) as known:
            await in_sync(left, known)
            empty: Any = left.engine
            empty.handovers = lambda bytes_max: ([], 0)
            left.daemon.operations.drain(1 << 30, 10.0, stay=False)
            await eventually(lambda: left.daemon.handover.drain.progress.state == "left")
            holder = await stack.enter_async_context(LoopNode("c", free_port(), [b]))
            await in_sync(known, holder)
        await holder.set("x")
        driver = left.daemon.removal_driver
        status, _, text = await driver.remove(digest_of("x"), 0.3, (bytes(16), 0))
        assert status == Status.draining and "remove the pages at a member" in text
        assert await left.daemon.operations.clear("model") == {
            "unreached": ["the members (a: it has left the cluster)"]
        }


async def test_a_node_that_missed_a_clear_learns_of_it_by_heartbeats() -> None:
    async with LoopNode("a") as head, LoopNode("b", heads=[head]) as late:
        await in_sync(head, late)
        namespace_id = head.engine.namespace_id("model")
        head.engine.raise_epoch(namespace_id, 3)
        await eventually(lambda: late.engine.epochs.get(namespace_id) == 3)


async def test_only_the_process_that_began_a_removal_ends_it() -> None:
    ports = [free_port() for _ in range(3)]
    async with contextlib.AsyncExitStack() as stack:
        driver, liar, member = [
            await stack.enter_async_context(LoopNode(name, port, ports[:1]))
            for name, port in zip("abc", ports, strict=True)
        ]
        await in_sync(driver, liar, member)
        await member.set("x")
        await liar.daemon.server.stop(0)
        removal = asyncio.ensure_future(
            driver.daemon.removal_driver.remove(digest_of("x"), 0.5, (bytes(16), 0))
        )
        running = member.daemon.removals.ledger.running
        await eventually(lambda: running)
        (id,) = running
        end = pb.EndRemovalsRequest(ids=[id_message(id)])
        future = pb.EndRemovalsRequest(ids=[id_message(RemovalId(id.incarnation, 99))])
        by = liar.daemon.placement.own.address
        for node in (driver, member):
            with pytest.raises(LookupError, match="not b's to end"):
                node.daemon.removals.told_over(by, end)
            node.daemon.removals.told_over(by, future)
            assert not node.daemon.removals.ledger.is_over(RemovalId(id.incarnation, 99))
        again = remove_request(id, digest_of("x"), None)
        assert not (await driver.daemon.removals.answer(by, again)).over
        with pytest.raises(LookupError, match="not b's"):
            await member.daemon.removals.answer(by, again)
        assert (await removal)[0] == Status.removing
        assert running.keys() == {id}
        began = driver.daemon.placement.own.address
        member.daemon.removals.told_over(began, end)
        assert not running

        # The liar's end of a removal to come counted for nothing. The driver's does.
        late = remove_request(RemovalId(id.incarnation, 99), digest_of("x"), None)
        assert (await member.daemon.removals.answer(began, late)).kept
        assert running
        member.daemon.removals.told_over(began, future)
        early = RemovalId(id.incarnation, 100)
        member.daemon.removals.told_over(began, pb.EndRemovalsRequest(ids=[id_message(early)]))
        late = remove_request(early, digest_of("x"), None)
        assert (await member.daemon.removals.answer(began, late)).kept
        assert not running
