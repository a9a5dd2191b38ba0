"""Has pages copied into our pool that workers here often read from other nodes (docs/replicas.md).

The data plane counts the reads and copies the pages (native/engine/hot_reads.h, adopter.h).

A holder that has not caught up may still hold pages that were removed while it was away. It drops
them when it learns of this, but nobody would drop a copy that another node had made meanwhile. So
pages are copied only from nodes that vouch (peer/removals/catch_up.py). All nodes are asked, one
after the other, until they do; holders of hot pages at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from peercached.directory.layout import SELF
from peercached.directory.placement import Node, Placement
from peercached.membership import NodeAddress

if TYPE_CHECKING:
    from peercached._native import Engine

log = logging.getLogger(__name__)

ASK_EVERY_S = 0.2


class Replicas:
    """Use it on the event loop's thread. `vouches` asks a node whether it has missed no removal.
    `bytes_max` is the room for replicas in the pool. `timeout_s` bounds the copies of one turn."""

    def __init__(
        self,
        engine: Engine,
        placement: Placement,
        vouches: Callable[[NodeAddress], Awaitable[bool]],
        bytes_max: Callable[[], int],
        timeout_s: float,
    ) -> None:
        self._engine = engine
        self._placement = placement
        self._vouches = vouches
        self._bytes_max = bytes_max
        self._timeout_s = timeout_s
        self._vouching: set[Node] = set()
        self._ask_at = 0.0
        self._turn = 0
        self._asking: asyncio.Task[None] | None = None
        self._copying: asyncio.Task[None] | None = None

    def tend(self, now: float) -> None:
        """Call it a few times a second; `now` is monotonic seconds."""
        self._engine.set_replicas_max(self._bytes_max())
        if now >= self._ask_at and _is_over(self._asking):
            self._ask_at = now + ASK_EVERY_S
            self._ask_next()
        if _is_over(self._copying) and (holders := self._engine.hot_holders()):
            self._copying = asyncio.ensure_future(self._copy(holders))

    async def stop(self) -> None:
        tasks = [task for task in (self._asking, self._copying) if task is not None]
        await asyncio.gather(*tasks, return_exceptions=True)

    def _unsure(self) -> list[Node]:
        others = {node for node in self._placement.nodes.values() if node.index != SELF}
        self._vouching &= others
        return sorted(others - self._vouching, key=lambda node: node.index)

    def _ask_next(self) -> None:
        if unsure := self._unsure():
            self._asking = asyncio.ensure_future(self._ask(unsure[self._turn % len(unsure)]))
            self._turn += 1

    async def _ask(self, node: Node) -> None:
        if await self._vouches(node.address):
            self._vouching.add(node)
            self._engine.set_vouches(node.index, node.address.incarnation)

    async def _copy(self, holders: list[int]) -> None:
        try:
            unsure = [node for node in self._unsure() if node.index in holders]
            await asyncio.gather(*(self._ask(node) for node in unsure))
            await asyncio.get_running_loop().run_in_executor(
                None, self._engine.replicate, round(1000 * self._timeout_s)
            )
        except Exception:
            log.exception("no replicas of hot pages were made; will retry")


def _is_over(task: asyncio.Task[None] | None) -> bool:
    return task is None or task.done()
