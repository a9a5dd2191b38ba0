"""Moves or copies pages to other nodes as soon as they are set (`write_policy`, docs/spill.md)."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Literal

from peercached.component import Component, Stats
from peercached.peer.handover.giver import ELSEWHERE, Giver
from peercached.peer.handover.parts import OFFERS_MAX, Part

if TYPE_CHECKING:
    from peercached._native import Engine

log = logging.getLogger(__name__)


class Push(Component):
    """Use it on the event loop's thread. `may_give` says whether this node takes sets and has
    missed no removal."""

    def __init__(
        self,
        engine: Engine,
        giver: Giver,
        may_give: Callable[[], bool],
        policy: Literal["local", "remote", "both"],
    ) -> None:
        self._engine = engine
        self._giver = giver
        self._may_give = may_give
        self._keeps = policy == "both"
        self._task: asyncio.Task[None] | None = None
        self._pages = self._bytes = self._kept = 0
        engine.note_sets(policy != "local")

    def tend(self, now: float) -> None:
        """Begins a round if there is something to do. Call it a few times a second; `now` is
        monotonic seconds."""
        is_idle = self._task is None or self._task.done()
        if is_idle and self._engine.has_fresh() and self._may_give() and self._giver.takers(now):
            self._task = asyncio.ensure_future(self._round())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def sections(self, stats: Stats) -> dict[str, Any]:
        del stats
        return {"push": {"pages": self._pages, "bytes": self._bytes, "kept": self._kept}}

    async def _round(self) -> None:
        try:
            while self._engine.has_fresh():
                queue = iter([Part.of(part, spilled=True) for part in self._engine.take_fresh()])
                await asyncio.gather(*(self._work(queue) for _ in range(OFFERS_MAX)))
        except Exception:
            log.exception("pages could not be pushed; will go on with later ones")

    async def _work(self, queue: Iterator[Part]) -> None:
        for part in queue:
            await self._place(part)

    async def _place(self, part: Part) -> None:
        left = dict(part.rows)
        # First, or the peer's reads would count as uses.
        self._engine.set_moves(b"".join(left), ELSEWHERE)
        try:
            for node in self._giver.takers(time.monotonic()):
                if not left:
                    return
                given = await self._giver.offer(node, part, left, self._keeps)
                self._pages += given.pages
                self._bytes += given.bytes
        finally:
            self._kept += len(left)
            ours = part.rows if self._keeps else left
            self._engine.set_moves(b"".join(ours), part.moves)
