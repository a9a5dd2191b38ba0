"""A reader that has left the view keeps no channel into our pool. Making channels neither blocks
the threads and turns of other work nor waits for them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, cast

import pytest
from harness.channel_ends import end_of
from harness.clock import seconds
from harness.waiting import eventually

from peercached.directory.placement import Node
from peercached.peer.channels.accepts import ACCEPTS_PER_PEER_MAX, Accepts
from peercached.peer.channels.device_threads import DeviceThreads
from peercached.peer.rpc.failures import Unable

END = end_of(17, 4711)


class SlowEngine:
    """Makes a channel once `may_go_on` is set, and records expelled readers."""

    def __init__(self) -> None:
        self.may_go_on = threading.Event()
        self.begun = 0
        self.expelled: list[tuple[str, int]] = []

    def accept_channel(self, node_id: str, incarnation: int, end: bytes, closed: bytes) -> bytes:
        self.begun += 1
        assert self.may_go_on.wait(seconds(20))
        return b"answer"

    def expel_reader(self, node_id: str, incarnation: int) -> None:
        self.expelled.append((node_id, incarnation))


def setup() -> tuple[SlowEngine, Any, Any, Accepts]:
    engine = SlowEngine()
    address = SimpleNamespace(node_id="reader", incarnation=7)
    node = Node(3, cast(Any, address))
    own = SimpleNamespace(address=SimpleNamespace(node_id="holder"))
    placement = SimpleNamespace(
        own=own,
        nodes={3: node},
        view=SimpleNamespace(number=1),
        member=lambda _: node,
    )
    return engine, placement, address, Accepts(cast(Any, engine), cast(Any, placement))


async def until(condition: Callable[[], bool]) -> None:
    await asyncio.to_thread(eventually, condition)


@pytest.mark.parametrize("gives_up", [False, True])
async def test_a_reader_that_left_meanwhile_is_expelled_again(gives_up: bool) -> None:
    engine, placement, address, accepts = setup()
    call = asyncio.ensure_future(accepts.accept(address, END, b""))
    await until(lambda: engine.begun == 1)
    del placement.nodes[3]
    if gives_up:
        call.cancel()
    engine.may_go_on.set()
    with pytest.raises(asyncio.CancelledError if gives_up else LookupError):
        await call
    await until(lambda: engine.expelled == [("reader", 7)])


async def test_channel_accepts_per_member_are_bounded() -> None:
    engine, _, address, accepts = setup()
    calls = [
        asyncio.ensure_future(accepts.accept(address, END, b""))
        for _ in range(ACCEPTS_PER_PEER_MAX)
    ]
    await asyncio.sleep(0)  # all calls have a turn, but not all have a thread
    with pytest.raises(Unable, match="are being made"):
        await accepts.accept(address, END, b"")
    engine.may_go_on.set()
    assert await asyncio.gather(*calls) == [b"answer"] * ACCEPTS_PER_PEER_MAX
    assert engine.expelled == []
    assert (accepts.accepted, accepts.refused) == (ACCEPTS_PER_PEER_MAX, 1)


async def test_a_device_that_hangs_takes_no_thread_of_the_others() -> None:
    engine, _, address, accepts = setup()
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    call = asyncio.ensure_future(accepts.accept(address, END, b""))
    await until(lambda: engine.begun == 1)
    engine.may_go_on.set()
    assert await call == b"answer"
    accepts.stop()


async def test_peers_whose_calls_hang_keep_no_other_peer_waiting() -> None:
    threads, go_on = DeviceThreads("test"), threading.Event()
    lost = [Node(number, cast(Any, None)) for number in range(1, 33)]

    def hangs() -> bool:
        return go_on.wait(seconds(20))

    hanging = [asyncio.ensure_future(threads.run(node, 0, hangs)) for node in 4 * lost]
    await asyncio.sleep(0)
    assert await threads.run(Node(33, cast(Any, None)), 0, lambda: "well") == "well"
    assert await threads.run(lost[0], 1, lambda: "well") == "well", "by another rail"
    assert not any(work.done() for work in hanging)
    go_on.set()
    assert all(await asyncio.gather(*hanging))


async def test_call_cancelled_before_its_turn_never_runs() -> None:
    threads, go_on, done = DeviceThreads("test"), threading.Event(), list[int]()
    node = Node(1, cast(Any, None))

    def call(number: int) -> Callable[[], None]:
        def do() -> None:
            done.append(number)
            assert go_on.wait(seconds(20))

        return do

    calls = [asyncio.ensure_future(threads.run(node, 0, call(number))) for number in range(3)]
    await until(lambda: done == [0])
    for given_up in calls[:2]:
        given_up.cancel()
    go_on.set()
    await calls[2]
    assert done == [0, 2], "the first had begun"
