"""Drops records that this node no longer owns, a while after each change of the ring."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from peercached.directory.placement import Placement

if TYPE_CHECKING:
    from peercached._native import Engine


class Trim:
    def __init__(self, engine: Engine, placement: Placement) -> None:
        self._engine = engine
        self._placement = placement
        self._running: asyncio.Future[int] | None = None

    def tend(self, now: float) -> None:
        """Call it often, on the event loop's thread. The work runs on another one."""
        runs = self._running is not None and not self._running.done()
        if not runs and self._placement.trim_due(now):
            loop = asyncio.get_running_loop()
            self._running = loop.run_in_executor(None, self._engine.shard_trim)
