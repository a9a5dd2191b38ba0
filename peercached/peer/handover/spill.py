"""A full node offers the pages that it would evict next to peers with room or older pages.

So the memory of all nodes works as one cache (docs/spill.md). A peer pulls the pages that it takes
and publishes them, as in a drain. Then we withdraw our records, and drop our copies once no reader
uses these records any more.

Pages are offered to one peer after the other. A peer with neither room nor older pages is left
alone for a while, longer each time. So nodes that are equally busy ask each other once a minute,
and no page moves.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from zlib import crc32

from peercached.component import Component, Stats
from peercached.directory.placement import Node, Placement
from peercached.peer.handover.parts import (
    OFFERS_MAX,
    READERS_DONE_S,
    Answer,
    Offers,
    Part,
    bytes_of,
)
from peercached.peer.handover.takers import takers
from peercached.peer.rpc.tasks import Tasks

if TYPE_CHECKING:
    from peercached._native import Engine

log = logging.getLogger(__name__)

# Share of the pool: pages are offered when so many bytes of sets are left before their eviction.
# More while sets come faster than pages move.
AHEAD_MIN = 0.02
AHEAD_MAX = 0.1
# Of pages that move now (native/pool/slot.h).
ELSEWHERE = 255
# Unused budget adds up for so many seconds.
BURST_S = 1.0
# How long a peer that took nothing is left alone. Doubles up to the maximum.
REST_FIRST_S = 1.0
REST_MAX_S = 60.0


@dataclass(slots=True)
class _Rest:
    until: float  # monotonic seconds
    pause_s: float


class Spill(Component):
    """Use it on the event loop's thread. `takes_sets` and `vouches` say whether this node takes
    sets, and whether it has missed no removal. `bytes_per_s` is the budget; 0: no page spills."""

    def __init__(
        self,
        engine: Engine,
        placement: Placement,
        offers: Offers,
        withdraw: Callable[[bytes], Awaitable[None]],
        drop: Callable[[bytes], Awaitable[None]],
        takes_sets: Callable[[], bool],
        vouches: Callable[[], bool],
        pool_bytes: int,
        bytes_per_s: Callable[[], int],
    ) -> None:
        self._engine = engine
        self._placement = placement
        self._offers = offers
        self._withdraw = withdraw
        self._drop = drop
        self._takes_sets = takes_sets
        self._vouches = vouches
        self._pool_bytes = pool_bytes
        self._ahead = AHEAD_MIN
        self._bytes_per_s = bytes_per_s
        self._left_bytes = 0.0  # of the budget; below 0 after a part that was larger
        self._counted_at = time.monotonic()
        self._turns = itertools.count()
        self._rests: dict[Node, _Rest] = {}
        self._rooms: dict[Node, tuple[int, int]] = {}  # free bytes, age of the coldest page
        self._task: asyncio.Task[None] | None = None
        self._drops = Tasks()
        self._pages = self._bytes = self._duplicates = self._refused = 0

    def tend(self, now: float) -> None:
        """Begins a round if there may be something to do. Call it a few times a second; `now` is
        monotonic seconds."""
        rate = self._bytes_per_s()
        earned = rate * (now - self._counted_at)
        self._left_bytes = min(self._left_bytes + earned, rate * BURST_S)
        self._counted_at = now
        is_idle = self._task is None or self._task.done()
        may_spill = self._left_bytes > 0 and self._takes_sets() and self._vouches()
        if is_idle and may_spill and self._takers(now):
            self._task = asyncio.ensure_future(self._round())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._drops.stop()

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

    async def _round(self) -> None:
        try:
            while self._left_bytes > 0 and self._takers(time.monotonic()):
                if not await self._spill_once():
                    return
        except Exception:
            log.exception("pages could not be spilled; will retry")

    async def _spill_once(self) -> bool:
        """Whether any page has moved or need not."""
        loop = asyncio.get_running_loop()
        ahead = int(self._ahead * self._pool_bytes)
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
            for node in self._takers(time.monotonic()):
                if not left or self._left_bytes <= 0:
                    return
                await self._offer(node, part, left)
        finally:
            self._engine.set_moves(b"".join(left), part.moves)

    async def _offer(self, node: Node, part: Part, left: dict[bytes, bytes]) -> None:
        """Pages that the peer takes leave `left`."""
        answer = await self._offers.offer(node, part, left)
        self._rooms[node] = answer.free_bytes, answer.coldest_idle_ms
        self._judge(node, answer)
        self._refused += len(left) - len(answer.taken)
        if answer.taken:
            moved = sum(bytes_of(left.pop(digest)) for digest in answer.taken)
            self._pages += len(answer.taken)
            self._bytes += moved
            self._left_bytes -= moved
            digests = b"".join(answer.taken)
            await self._withdraw(digests)
            self._drops.spawn(self._drop_later(digests))

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

    async def _drop_later(self, digests: bytes) -> None:
        await asyncio.sleep(READERS_DONE_S)
        await self._drop(digests)

    # --- the peers

    def _takers(self, now: float) -> list[Node]:
        """Peers to ask: those with most room first, then those with the oldest pages."""
        members = set(self._placement.nodes.values())
        for known in (self._rests, self._rooms):
            for gone in known.keys() - members:
                del known[gone]
        awake = (n for n in members if n not in self._rests or now >= self._rests[n].until)
        found = takers(awake, self._placement.own, next(self._turns), now)
        return sorted(found, key=lambda node: self._rooms.get(node, (1 << 63, 0)), reverse=True)

    def _judge(self, node: Node, answer: Answer) -> None:
        if answer.taken:
            self._rests.pop(node, None)
            return
        rest = self._rests.get(node)
        pause_s = REST_FIRST_S if rest is None or answer.busy else min(2 * rest.pause_s, REST_MAX_S)
        self._rests[node] = _Rest(time.monotonic() + pause_s, pause_s)


def _order(node: Node, digest: bytes) -> int:
    return crc32(digest, crc32(node.address.node_id.encode()))
