"""Calls into RDMA devices, in threads of their own.

To connect a queue pair the kernel may have to ask the network who has the peer's address, and where
nobody answers that takes seconds. So each peer has one call at a time for each of its
rails, in a thread that nobody else waits for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from peercached.directory.placement import Node

T = TypeVar("T")

# Threads that wait cost no more than their stacks.
THREADS_MAX = 256


class DeviceThreads:
    """On one event loop."""

    def __init__(self, name: str) -> None:
        self._threads = ThreadPoolExecutor(THREADS_MAX, name)
        self._turns: dict[Node, dict[int, asyncio.Lock]] = {}

    async def run(self, node: Node, rail: int, call: Callable[[], T]) -> T:
        """After the calls for this rail of that node that came before. One whose caller gives up
        before its turn is never made; one that has begun keeps the turn until it has ended."""
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
        """A node that is out of the view."""
        self._turns.pop(node, None)

    def stop(self) -> None:
        """What is at work ends by itself, and nothing begins."""
        self._threads.shutdown(wait=False, cancel_futures=True)
