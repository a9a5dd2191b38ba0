"""Moves or copies pages to other nodes once they are set (`write_policy`, page-placement.md)."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from peercached.component import Component, Stats
from peercached.peer.handover.drain import Drain
from peercached.peer.handover.giver import ELSEWHERE, Giver
from peercached.peer.handover.parts import OFFERS_MAX, Part

if TYPE_CHECKING:
    from peercached._native import Engine

log = logging.getLogger(__name__)


# Parts that no node took are offered again after so many seconds, so often at most. Further ones
# than AGAIN_MAX are not.
AGAIN_S = 0.2
TRIES_MAX = 50
AGAIN_MAX = 1024


@dataclass(frozen=True, slots=True)
class _Waiting:
    part: Part
    rows: Mapping[bytes, bytes]  # of the part, those that no node has taken
    tries: int


class Push(Component):
    """Use it on the event loop's thread."""

    def __init__(
        self,
        engine: Engine,
        giver: Giver,
        drain: Drain,
        policy: Literal["local", "remote", "both"],
    ) -> None:
        self._engine = engine
        self._giver = giver
        self._drain = drain
        self._keeps = policy == "both"
        self._task: asyncio.Task[None] | None = None
        self._again: list[_Waiting] = []
        self._again_at = 0.0  # monotonic seconds
        self._pages = self._bytes = self._kept = 0
        engine.note_sets(policy != "local")

    def tend(self, now: float) -> None:
        """Begins a round if there is something to do. Call it a few times a second; `now` is
        monotonic seconds."""
        if self._task is not None and not self._task.done():
            return
        has_work = self._engine.has_fresh() or self._again_due()
        if has_work and self._drain.may_move_pages and self._giver.takers(now):
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
            while self._engine.has_fresh() or self._again_due():
                parts = [Part.of(part, spilled=True) for part in self._engine.take_fresh()]
                waiting = [_Waiting(part, part.rows, TRIES_MAX) for part in parts]
                if self._again_due():
                    waiting += self._again
                    self._again.clear()
                queue = iter(waiting)
                await asyncio.gather(*(self._work(queue) for _ in range(OFFERS_MAX)))
        except Exception:
            log.exception("pages could not be pushed; will go on with later ones")

    async def _work(self, queue: Iterator[_Waiting]) -> None:
        for waiting in queue:
            await self._place(waiting)

    async def _place(self, waiting: _Waiting) -> None:
        part, left = waiting.part, dict(waiting.rows)
        # First, or the peer's reads would count as uses.
        self._engine.set_moves(b"".join(left), ELSEWHERE)
        try:
            for node in self._giver.takers(time.monotonic()):
                if not left:
                    return
                given = await self._giver.offer(node, part, left, keeps=self._keeps)
                self._pages += given.pages
                self._bytes += given.bytes
        finally:
            ours = waiting.rows if self._keeps else left
            self._engine.set_moves(b"".join(ours), part.moves)
        if left and waiting.tries > 1 and len(self._again) < AGAIN_MAX:
            self._again_at = time.monotonic() + AGAIN_S
            self._again.append(_Waiting(part, left, waiting.tries - 1))
        else:
            self._kept += len(left)

    def _again_due(self) -> bool:
        return bool(self._again) and time.monotonic() >= self._again_at
