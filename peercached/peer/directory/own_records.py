"""Withdraws and drops records of this node, and waits until no follower names their pages."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from peercached.directory.placement import Placement

if TYPE_CHECKING:
    from peercached._native import Engine

# Seconds after which a wait looks again, should the engine's event be lost.
LOOK_S = 0.1
# Share of a call's timeout. The call itself needs the rest.
SHARE = 0.5


class OwnRecords:
    """Use it on the event loop's thread."""

    def __init__(self, engine: Engine, placement: Placement, timeout_s: float) -> None:
        """`timeout_s`: the limit of other nodes' calls that wait for told()."""
        self._engine = engine
        self._placement = placement
        self._timeout_s = timeout_s
        self._moved = asyncio.Event()

    def moved(self) -> None:
        """A follower has asked the engine again."""
        self._moved.set()
        self._moved = asyncio.Event()

    async def told(self, digests: bytes = b"") -> set[str]:
        """Waits until no follower names a page of these digests that has left this node; without
        digests, any page. Returns within the call deadline, with the node ids of those that may
        still do so. A silent one can only do so until its lease ends (native/directory/feed.h)."""
        deadline = time.monotonic() + SHARE * self._timeout_s
        position = self._engine.tell_followers(digests)
        while True:
            moved = self._moved
            behind = self._engine.followers_behind(position)
            left_s = deadline - time.monotonic()
            if not behind or left_s <= 0:
                break
            lease_s = min(until_s for _, until_s in behind)
            wait = asyncio.ensure_future(moved.wait())
            await asyncio.wait((wait,), timeout=max(min(left_s, lease_s, LOOK_S), 0.0))
            wait.cancel()
        gone = {incarnation for incarnation, _ in behind}
        nodes = self._placement.nodes.values()
        return {node.address.node_id for node in nodes if node.address.incarnation in gone}

    async def withdraw(self, records: bytes, unless_pinned: bool) -> int:
        """Withdraws these records; those of copies on our disk stay. Readers that
        looked them up before can still read the pages. A page that was set again meanwhile has
        another record, which stays. `unless_pinned`: so do pages that are pinned here. Returns how
        many pages leave the pool."""
        leaving = self._engine.give_away(records, unless_pinned)
        await self.told()
        return leaving

    async def drop(self, records: bytes) -> None:
        """Drops the pages of these records from the pool after another node took them. Copies on
        our disk stay, and can be found."""
        self._engine.drop_moved(records)
        await self.told()
