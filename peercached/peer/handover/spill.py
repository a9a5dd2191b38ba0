"""A full node offers the pages that it would evict next to peers with room or older pages.

So the memory of all nodes works as one cache (docs/spill.md). Nodes that are equally busy refuse
each other's pages, so no page moves.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING, Any
from zlib import crc32

from peercached.component import Component, Stats
from peercached.directory.placement import Node, Placement
from peercached.peer.handover.giver import ELSEWHERE, Giver
from peercached.peer.handover.parts import OFFERS_MAX, Offers, Part, bytes_of

if TYPE_CHECKING:
    from peercached._native import Engine

log = logging.getLogger(__name__)

# Share of the pool: pages are offered when so many bytes of sets are left before their eviction.
# More while sets come faster than pages move.
AHEAD_MIN = 0.02
AHEAD_MAX = 0.1
# Unused budget adds up for so many seconds.
BURST_S = 1.0


class Spill(Component):
    """Use it on the event loop's thread. `may_give` says whether this node takes sets and has
    missed no removal. `bytes_per_s` is the budget; 0: no page spills."""

    def __init__(
        self,
        engine: Engine,
        placement: Placement,
        offers: Offers,
        giver: Giver,
        may_give: Callable[[], bool],
        pool_bytes: int,
        bytes_per_s: Callable[[], int],
    ) -> None:
        self._engine = engine
        self._placement = placement
        self._offers = offers
        self._giver = giver
        self._may_give = may_give
        self._pool_bytes = pool_bytes
        self._ahead = AHEAD_MIN
        self._bytes_per_s = bytes_per_s
        self._left_bytes = 0.0  # of the budget; below 0 after a part that was larger
        self._counted_at = time.monotonic()
        self._task: asyncio.Task[None] | None = None
        self._pages = self._bytes = self._duplicates = self._refused = 0

    def tend(self, now: float) -> None:
        """Begins a round if there may be something to do. Call it a few times a second; `now` is
        monotonic seconds."""
        rate = self._bytes_per_s()
        earned = rate * (now - self._counted_at)
        self._left_bytes = min(self._left_bytes + earned, rate * BURST_S)
        self._counted_at = now
        if self._left_bytes <= 0 or (self._task is not None and not self._task.done()):
            return
        is_full = self._engine.evicts_within(self._ahead_bytes)
        if is_full and self._may_give() and self._giver.takers(now):
            self._task = asyncio.ensure_future(self._round())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    # --- for people

    def sections(self, stats: Stats) -> dict[str, Any]:
        del stats
        return {
            "spill": {
                "pages": self._pages,
                "bytes": self._bytes,
                "duplicates": self._duplicates,
                "refused": self._refused,
            }
        }

    # --- the work

    @property
    def _ahead_bytes(self) -> int:
        return int(self._ahead * self._pool_bytes)

    async def _round(self) -> None:
        try:
            while self._left_bytes > 0 and self._giver.takers(time.monotonic()):
                if not await self._spill_once():
                    return
        except Exception:
            log.exception("pages could not be spilled; will retry")

    async def _spill_once(self) -> bool:
        """Whether any page has moved or need not."""
        loop = asyncio.get_running_loop()
        ahead = self._ahead_bytes
        found, _ = await loop.run_in_executor(None, self._engine.coldest, ahead)
        parts = [Part.of(part, spilled=True) for part in found]
        new_bytes = sum(bytes_of(row) for part in parts for row in part.rows.values())
        if new_bytes > ahead // 2:
            self._ahead = min(2 * self._ahead, AHEAD_MAX)
        elif new_bytes < ahead // 8:
            self._ahead = max(self._ahead / 2, AHEAD_MIN)
        before = self._pages + self._duplicates
        queue = iter(parts)
        await asyncio.gather(*(self._work(queue) for _ in range(OFFERS_MAX)))
        return self._pages + self._duplicates > before

    async def _work(self, queue: Iterator[Part]) -> None:
        for part in queue:
            if self._left_bytes <= 0:
                return
            await self._place(part)

    async def _place(self, part: Part) -> None:
        left = dict(part.rows)
        # First, or the peer's reads would count as uses.
        self._engine.set_moves(b"".join(left), ELSEWHERE)
        try:
            spare = await self._held_twice(part)
            self._duplicates += len(spare)
            for digest in spare:
                del left[digest]
            must_wait = False  # for a node with room
            for node in self._giver.takers(time.monotonic()):
                has_room = self._giver.has_room(node)
                if not left or self._left_bytes <= 0 or (must_wait and not has_room):
                    return
                given = await self._giver.offer(node, part, left)
                self._pages += given.pages
                self._bytes += given.bytes
                self._left_bytes -= given.bytes
                self._refused += given.refused
                must_wait |= given.busy and has_room
        finally:
            self._engine.set_moves(b"".join(left), part.moves)

    async def _held_twice(self, part: Part) -> Collection[bytes]:
        """Pages that another node has in its pool and keeps. Of all holders, the one that comes
        first in an order that is another for each page keeps it, so they do not rely on each other.
        """
        others = [node for node in self._placement.nodes.values() if node.index]
        held = await self._offers.held_elsewhere(part, others, in_memory=True)
        own = self._placement.own
        return {
            digest
            for node, rows in held.items()
            for digest in rows
            if _order(node, digest) < _order(own, digest)
        }


def _order(node: Node, digest: bytes) -> int:
    return crc32(digest, crc32(node.address.node_id.encode()))
