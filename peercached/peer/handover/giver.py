"""Gives pages of this node to one peer after the other: those with most room first.

A peer pulls the pages that it takes and publishes them, as in a drain. If we give them up, we then
withdraw our records, and drop our copies once no reader uses these records any more.

A peer with neither room nor older pages is left alone for a while, longer each time. So nodes that
are equally busy ask each other once a minute. A peer gets no more parts at a time than it takes.
Further ones go to other peers, or wait.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from peercached.directory.layout import length_of
from peercached.directory.placement import Node, Placement
from peercached.peer.directory.own_records import OwnRecords
from peercached.peer.handover.parts import (
    ADOPTS_MAX,
    READERS_DONE_S,
    Answer,
    Offers,
    Part,
)
from peercached.peer.handover.rests import Rests
from peercached.peer.handover.takers import takers
from peercached.peer.rpc.tasks import Tasks

if TYPE_CHECKING:
    from peercached._native import Engine

# Slot::moves (native/pool/slot.h) of a page that another pool takes or has: a peer's READ is no use
# of it, and it is spilled no more.
ELSEWHERE = 255
# How long a peer is left alone that takes other pages at the moment.
BUSY_S = 0.1
# The longest time that a peer which took nothing is left alone.
REST_MAX_S = 60.0


@dataclass(frozen=True, slots=True)
class Given:
    pages: int = 0  # that leave our pool, or that the peer took if they stay
    bytes: int = 0  # that the peer took
    refused: int = 0  # pages
    busy: bool = False  # the peer takes other pages at the moment
    why_not: str = ""  # why it did not take the refused ones


class Giver:
    """Use it on the event loop's thread."""

    def __init__(
        self,
        engine: Engine,
        placement: Placement,
        offers: Offers,
        own_records: OwnRecords,
    ) -> None:
        self._engine = engine
        self._placement = placement
        self._offers = offers
        self._own_records = own_records
        self._turns = itertools.count()
        self._rests = Rests(REST_MAX_S)
        self._rooms: dict[Node, tuple[int, int]] = {}  # free bytes, age of the coldest page
        self._under_way: Counter[Node] = Counter()  # parts at each peer
        self._drops = Tasks()

    def takers(self, now: float) -> list[Node]:
        """Peers to ask, in order: those with room, then full ones. Of each, those with the fewest
        of our parts, then those with most room or the oldest pages. `now` is monotonic seconds."""
        members = list(self._placement.nodes.values())
        self._rests.keep_only(members)
        for known in (self._rooms, self._under_way):
            for gone in known.keys() - set(members):
                del known[gone]
        free = (
            node
            for node in members
            if self._rests.is_awake(node, now) and self._under_way[node] < ADOPTS_MAX
        )
        found = takers(free, self._placement.own, next(self._turns), now)
        return sorted(found, key=self._order)

    def _order(self, node: Node) -> tuple[bool, int, int, int]:
        free_bytes, coldest_idle_ms = self._rooms.get(node, (1 << 63, 0))
        return free_bytes == 0, self._under_way[node], -free_bytes, -coldest_idle_ms

    async def offer(
        self,
        node: Node,
        part: Part,
        left: dict[bytes, bytes],
        *,
        keeps: bool = False,
        ends_pins: bool = False,
    ) -> Given:
        """Offers the pages in `left`. A page that the peer takes leaves `left`, and our copy goes.
        `keeps`: it stays. It also stays if it is pinned, unless the move `ends_pins`."""
        offered = b"".join(left.values())
        if not keeps:
            self._engine.begin_offer(offered)
        try:
            self._under_way[node] += 1
            given, taken = await self._offer(node, part, left)
            if taken and not keeps:
                leaving = await self._give_up(b"".join(taken), ends_pins)
                # Others were evicted meanwhile, or are pinned.
                given = replace(given, pages=leaving)
        finally:
            self._under_way[node] -= 1
            if not keeps:
                self._engine.end_offer(offered)
        return given

    async def _offer(
        self, node: Node, part: Part, left: dict[bytes, bytes]
    ) -> tuple[Given, list[bytes]]:
        """Also returns our records of the pages that the peer took."""
        offered = len(left)
        answer = await self._offers.offer(node, part, left)
        if not (answer.busy or answer.failed):
            self._rooms[node] = answer.free_bytes, answer.coldest_idle_ms
        self._judge(node, answer)
        taken = [left.pop(digest) for digest in answer.taken]
        given = Given(
            len(taken),
            sum(map(length_of, taken)),
            offered - len(taken),
            answer.busy,
            answer.why_not,
        )
        return given, taken

    async def _give_up(self, records: bytes, ends_pins: bool) -> int:
        try:
            return await self._own_records.withdraw(records, not ends_pins)
        finally:
            self._drops.spawn(self._drop_later(records))

    def has_room(self, node: Node) -> bool:
        """Whether its pool is not full, as far as we know."""
        return self._rooms.get(node, (1, 0))[0] > 0

    def most_room(self) -> tuple[int, str]:
        """The free bytes of the peer with most room, as far as we know, and its node id."""
        rooms = ((room[0], node.address.node_id) for node, room in self._rooms.items())
        return max(rooms, default=(0, ""))

    async def stop(self) -> None:
        await self._drops.stop()

    def _judge(self, node: Node, answer: Answer) -> None:
        now = time.monotonic()
        if answer.taken:
            self._rests.end(node)
        elif answer.full or answer.failed:
            self._rests.rest(node, now)
        else:  # it is busy, or the pages have gone meanwhile
            self._rests.rest_for(node, now, BUSY_S)

    async def _drop_later(self, records: bytes) -> None:
        await asyncio.sleep(READERS_DONE_S)
        await self._own_records.drop(records)
