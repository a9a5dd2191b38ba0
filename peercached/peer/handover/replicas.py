"""Copies pages into our pool that workers here often read from other nodes (docs/replicas.md).

The data plane counts the reads and copies the pages (native/engine/hot_reads.h, adopter.h).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from peercached._native import Engine

log = logging.getLogger(__name__)


class Replicas:
    """Use it on the event loop's thread. `bytes_max` is the room for replicas in the pool.
    `timeout_s` bounds the copies of one turn."""

    def __init__(self, engine: Engine, bytes_max: Callable[[], int], timeout_s: float) -> None:
        self._engine = engine
        self._bytes_max = bytes_max
        self._timeout_s = timeout_s
        self._task: asyncio.Task[None] | None = None

    def tend(self, now: float) -> None:
        """Call it a few times a second."""
        del now
        is_idle = self._task is None or self._task.done()
        if is_idle and self._engine.has_hot_reads():
            self._task = asyncio.ensure_future(self._copy())

    async def stop(self) -> None:
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    async def _copy(self) -> None:
        try:
            await asyncio.get_running_loop().run_in_executor(
                None, self._engine.replicate, self._bytes_max(), round(1000 * self._timeout_s)
            )
        except Exception:
            log.exception("no replicas of hot pages were made; will retry")
