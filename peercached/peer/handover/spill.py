"""A full node offers the pages that it would evict next to peers with room or older pages.

So the memory of all nodes works as one cache (docs/page-placement.md). Nodes that are equally busy
refuse each other's pages, so no page moves.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from zlib import crc32

from peercached.component import Component, Stats
from peercached.directory.placement import Node, Placement
from peercached.health import Say, kinds
from peercached.peer.handover.drain import Drain
from peercached.peer.handover.giver import ELSEWHERE, Giver
from peercached.peer.handover.parts import OFFERS_MAX, Offers, Part
from peercached.service.settings import Settings

if TYPE_CHECKING:
    from peercached._native import Engine

log = logging.getLogger(__name__)

# A page is offered when sets of the next two seconds or so would evict it: the node looks ahead by
# as many bytes as came in the last ones.
LATELY_S = 2.0
# Bounds of that, as shares of the pool: at least; while a peer has room; while pages are lost
# beside full peers. In the last case the node looks ahead by a tenth only. Pages farther ahead are
# younger, and nodes that are equally busy would exchange them.
AHEAD_MIN = 0.02
AHEAD_MAX = 0.5
AHEAD_LOSING = 0.05
AHEAD_LOSING_MAX = 0.1
# Unused budget adds up for so many seconds.
BURST_S = 1.0
# It looks for further parts so often, until none has moved for LINGER_S: while sets are fast, the
# next call of tend() comes too late.
LOOK_S = 0.02
LINGER_S = 0.2
# A finding tells of lost pages for so long.
LOST_LATELY_S = 600.0


@dataclass(slots=True)
class _Lost:
    """Pages that were evicted while a peer had room."""

    bytes: int = 0
    at: float = 0.0  # the last of them; monotonic seconds
    node_id: str = ""  # the peer with most room then
    free_bytes: int = 0


class Spill(Component):
    """Use it on the event loop's thread. `spill_bytes_per_s` is the budget; 0: no page spills."""

    def __init__(
        self,
        engine: Engine,
        placement: Placement,
        offers: Offers,
        giver: Giver,
        drain: Drain,
        settings: Settings,
    ) -> None:
        self._engine = engine
        self._placement = placement
        self._offers = offers
        self._giver = giver
        self._drain = drain
        self._settings = settings
        self._pool_bytes = settings.config.pool_size
        self._left_bytes = 0.0  # of the budget; below 0 after a part that was larger
        self._counted_at = time.monotonic()
        self._set_bytes = self._free_bytes = self._lost_bytes = 0  # Engine.filling() at that time
        self._lately_bytes = 0.0  # that workers set
        self._lost_at = -LATELY_S
        self._lost_beside_room = _Lost()
        self._task: asyncio.Task[None] | None = None
        self._finding = asyncio.Lock()
        self._pages = self._bytes = self._duplicates = self._refused = 0

    def tend(self, now: float) -> None:
        """Begins a round if there may be something to do. Call it a few times a second; `now` is
        monotonic seconds."""
        rate = self._settings.config.spill_bytes_per_s
        passed_s = now - self._counted_at
        self._left_bytes = min(self._left_bytes + rate * passed_s, rate * BURST_S)
        self._counted_at = now
        self._watch(now, passed_s)
        if rate == 0 or (self._task is not None and not self._task.done()):
            return
        is_full = self._ahead_bytes > self._free_bytes
        if is_full and self._may_spill():
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

    def say(self, say: Say, stats: Stats) -> None:
        del stats
        lost = self._lost_beside_room
        if time.monotonic() - lost.at > LOST_LATELY_S or lost.bytes < AHEAD_MIN * self._pool_bytes:
            return
        say(
            kinds.EVICTED_BESIDE_ROOM,
            f"The pool evicted {lost.bytes >> 20} MiB of pages that no other node has, while "
            f"{lost.node_id} had {lost.free_bytes >> 20} MiB free. Pages were set faster than they "
            "move.",
            'Let several nodes set pages, or set write_policy to "remote", or give this node a '
            "larger pool_size.",
        )

    # --- the work

    @property
    def _ahead_bytes(self) -> int:
        """Far only if a peer has that much more room than this node, or nodes that fill up together
        exchange pages for nothing."""
        most = min(self._giver.most_room()[0] - self._free_bytes, AHEAD_MAX * self._pool_bytes)
        if self._counted_at - self._lost_at < LATELY_S:
            losing = max(AHEAD_LOSING * self._pool_bytes, self._lately_bytes / 10)
            most = max(most, min(losing, AHEAD_LOSING_MAX * self._pool_bytes))
        return int(max(min(self._lately_bytes, most), AHEAD_MIN * self._pool_bytes))

    def _watch(self, now: float, passed_s: float) -> None:
        """Notes how fast sets come and what is lost."""
        set_bytes, self._free_bytes, lost_bytes = self._engine.filling()
        self._lately_bytes *= max(1 - passed_s / LATELY_S, 0)
        self._lately_bytes += set_bytes - self._set_bytes
        if lost_bytes > self._lost_bytes:
            self._lost_at = now
            self._note_lost(now, lost_bytes - self._lost_bytes)
        self._set_bytes, self._lost_bytes = set_bytes, lost_bytes

    def _note_lost(self, now: float, lost_bytes: int) -> None:
        room_bytes, node_id = self._giver.most_room()
        if room_bytes < AHEAD_MIN * self._pool_bytes:
            return
        if now - self._lost_beside_room.at > LOST_LATELY_S:
            self._lost_beside_room = _Lost()
        lost = self._lost_beside_room
        lost.bytes += lost_bytes
        lost.at, lost.node_id, lost.free_bytes = now, node_id, room_bytes

    def _takers(self) -> list[Node]:
        """Peers to ask, in order. Only those with room if the budget is used up."""
        found = self._giver.takers(time.monotonic())
        return [node for node in found if self._left_bytes > 0 or self._giver.has_room(node)]

    def _may_spill(self) -> bool:
        return self._drain.may_move_pages and bool(self._takers())

    async def _round(self) -> None:
        try:
            await asyncio.gather(*(self._work() for _ in range(OFFERS_MAX)))
        except Exception:
            log.exception("pages could not be spilled; will retry")

    async def _work(self) -> None:
        moved_at = time.monotonic()
        while (
            self._drain.may_move_pages and self._takers() and time.monotonic() - moved_at < LINGER_S
        ):
            part = await self._next()
            if part is not None and await self._place(part):
                moved_at = time.monotonic()
            else:
                await asyncio.sleep(LOOK_S)

    async def _next(self) -> Part | None:
        """The part that goes first. It is marked, or eviction drops it before its turn, another
        worker takes it, too, and the peer's reads are uses."""
        async with self._finding:
            loop = asyncio.get_running_loop()
            found, _ = await loop.run_in_executor(None, self._engine.coldest, self._ahead_bytes)
            if not found:
                return None
            part = Part.of(found[0], spilled=True)
            self._engine.begin_offer(b"".join(part.rows.values()))
            self._engine.set_moves(b"".join(part.rows), ELSEWHERE)
            return part

    async def _place(self, part: Part) -> bool:
        """Whether any page has moved or need not."""
        left = dict(part.rows)
        try:
            spare = await self._held_twice(part)
            self._duplicates += len(spare)
            for digest in spare:
                del left[digest]
            must_wait = False  # for a node with room
            for node in self._takers():
                has_room = self._giver.has_room(node)
                if not left or (must_wait and not has_room):
                    break
                given = await self._giver.offer(node, part, left)
                self._pages += given.pages
                self._bytes += given.bytes
                # A move into free memory displaces nothing.
                self._left_bytes -= 0 if has_room else given.bytes
                self._refused += given.refused
                must_wait |= given.busy and has_room
        finally:
            self._engine.set_moves(b"".join(left), part.moves)
            self._engine.end_offer(b"".join(part.rows.values()))
        return len(left) < len(part.rows)

    async def _held_twice(self, part: Part) -> Collection[bytes]:
        """Pages that another node has in its pool and keeps. Of all holders, the one that comes
        first in an order that is another for each page keeps it, so they do not rely on each other.
        """
        others = [node for node in self._placement.nodes.values() if node.index]
        held = await self._offers.present_elsewhere(part, others, in_memory=True)
        own = self._placement.own
        return {
            digest
            for node, rows in held.items()
            for digest in rows
            if _order(node, digest) < _order(own, digest)
        }


def _order(node: Node, digest: bytes) -> int:
    return crc32(digest, crc32(node.address.node_id.encode()))
