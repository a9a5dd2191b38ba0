"""Copies pages into our pool that workers here often read from other nodes (docs/replicas.md).

The data plane counts the reads and copies the pages (native/engine/hot_reads.h, adopter.h).

A holder that has not caught up may still hold pages that were removed while it was away. It drops
them when it learns of this, but nobody would drop a copy that another node had made meanwhile. So
pages are copied only from nodes that vouch (peer/removals/catch_up.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from peercached.directory.placement import Node, Placement
from peercached.membership import NodeAddress

if TYPE_CHECKING:
    from peercached._native import Engine

log = logging.getLogger(__name__)


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
        self._vouching: set[Node] = set()  # as far as we have asked; a node goes on vouching
        self._bytes_max = bytes_max
        self._timeout_s = timeout_s
        self._task: asyncio.Task[None] | None = None

    def tend(self, now: float) -> None:
        """Call it a few times a second."""
        del now
        is_idle = self._task is None or self._task.done()
        if is_idle and (holders := self._engine.hot_holders()):
            self._task = asyncio.ensure_future(self._copy(holders))

    async def stop(self) -> None:
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    async def _copy(self, holders: list[int]) -> None:
        try:
            vouching = await self._who_vouch(holders)
            await asyncio.get_running_loop().run_in_executor(
                None,
                self._engine.replicate,
                vouching,
                self._bytes_max(),
                round(1000 * self._timeout_s),
            )
        except Exception:
            log.exception("no replicas of hot pages were made; will retry")

    async def _who_vouch(self, holders: list[int]) -> list[int]:
        members = {node.index: node for node in self._placement.nodes.values()}
        self._vouching &= set(members.values())
        asked = [members[each] for each in holders if each in members]
        asked = [node for node in asked if node not in self._vouching]
        answers = await asyncio.gather(*(self._vouches(node.address) for node in asked))
        self._vouching |= {node for node, yes in zip(asked, answers, strict=True) if yes}
        return [node.index for node in self._vouching]
