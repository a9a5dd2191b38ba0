"""Runs calls into RDMA devices in separate threads.

To connect a queue pair, the kernel may have to resolve the peer's address over the network. Without
an answer that takes seconds. So each rail of each peer runs one call at a time, in a thread that
delays no other rail or peer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from peercached.directory.placement import Node

T = TypeVar("T")

# High, because a waiting thread costs only its stack.
THREADS_MAX = 256


class DeviceThreads:
    """Use it from one event loop."""

    def __init__(self, name: str) -> None:
        self._threads = ThreadPoolExecutor(THREADS_MAX, name)
        self._turns: dict[Node, dict[int, asyncio.Lock]] = {}

    async def run(self, node: Node, rail: int, call: Callable[[], T]) -> T:
        """Runs `call` after earlier calls for this rail of the node. If the caller gives up before
        its turn, the call never runs. A call that has begun keeps its turn until it ends."""
        turn = self._turns.setdefault(node, {}).setdefault(rail, asyncio.Lock())
        await turn.acquire()
        try:
            work = asyncio.get_running_loop().run_in_executor(self._threads, call)
        except BaseException:
            turn.release()
            raise
        work.add_done_callback(lambda _: turn.release())
        return await asyncio.shield(work)

    def forget(self, node: Node) -> None:
        """The node left the view."""
        self._turns.pop(node, None)

    def stop(self) -> None:
        """Running calls end by themselves; no others begin."""
        self._threads.shutdown(wait=False, cancel_futures=True)
