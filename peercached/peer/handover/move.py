"""Hands single pages to a node that an operator named: the peer pulls, as in a drain or a spill."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from peercached.directory.placement import Node, Placement
from peercached.peer.handover.giver import BUSY_S, ELSEWHERE, Giver
from peercached.peer.handover.parts import Part
from peercached.removals.debts import Debts

if TYPE_CHECKING:
    from peercached._native import Engine


@dataclass(slots=True)
class Moved:
    pages: int = 0
    bytes: int = 0
    absent: int = 0  # pages that are not in this node's pool
    refused: int = 0  # pages that the peer did not take
    why_not: str = ""


@dataclass(eq=False)
class Move:
    """Use it on the event loop's thread."""

    _engine: Engine
    _placement: Placement
    _giver: Giver
    _debts: Debts

    async def move(self, digests: list[bytes], to: str, seconds: float) -> Moved:
        """Hands these pages over, within about `seconds`. Raises ValueError if that node cannot
        have them."""
        node = self._node(to)
        if self._debts.owes:
            raise ValueError(
                "this node has not heard of all removals yet, so it hands no page on: ask again in "
                "some seconds"
            )
        until = time.monotonic() + seconds
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(None, self._engine.parts_of, b"".join(digests))
        parts = [Part.of(part) for part in found]
        moved = Moved(absent=len(set(digests)) - sum(len(part.rows) for part in parts))
        for part in parts:
            await self._give(node, part, moved, until)
        return moved

    def _node(self, to: str) -> Node:
        nodes = {node.address.node_id: node for node in self._placement.nodes.values()}
        node = nodes.get(to)
        if node is None:
            raise ValueError(f"there is no member {to!r}: there are {', '.join(sorted(nodes))}")
        if node is self._placement.own:
            raise ValueError(f"{to} is this node: it has these pages already, name another one")
        if node.leaving:
            raise ValueError(f"{to} drains, so it takes no pages: name another node")
        if node.suspect:
            raise ValueError(f"{to} does not answer now (suspect): name another node, or try again")
        return node

    async def _give(self, node: Node, part: Part, moved: Moved, until: float) -> None:
        left = dict(part.rows)
        # First, or the peer's reads would count as uses.
        self._engine.set_moves(b"".join(left), ELSEWHERE)
        try:
            while left:
                given = await self._giver.offer(node, part, left, ends_pins=True)
                moved.pages += given.pages
                moved.bytes += given.bytes
                moved.why_not = given.why_not or moved.why_not
                if not given.busy or time.monotonic() >= until:
                    break
                await asyncio.sleep(BUSY_S)
        finally:
            self._engine.set_moves(b"".join(left), part.moves)
        moved.refused += len(left)
