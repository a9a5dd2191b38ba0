"""Copies pages that workers here often read from other nodes into our pool (page-placement.md).

The data plane counts the reads and copies the pages (native/engine/handover/hot_reads.h,
adopter.h).
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from peercached.service.settings import Settings

if TYPE_CHECKING:
    from peercached._native import Engine

log = logging.getLogger(__name__)


class Replicas:
    """Use it on the event loop's thread. `timeout_s` bounds the copies of one turn."""

    def __init__(self, engine: Engine, settings: Settings, timeout_s: float) -> None:
        self._engine = engine
        self._settings = settings
        self._timeout_s = timeout_s
        self._copying: asyncio.Task[None] | None = None

    def tend(self, now: float) -> None:
        """Call it a few times a second; `now` is monotonic seconds."""
        del now
        config = self._settings.config
        self._engine.set_replicas_max(int(config.replica_share * config.pool_size))
        is_free = self._copying is None or self._copying.done()
        if is_free and self._engine.hot_holders():
            self._copying = asyncio.ensure_future(self._copy())

    async def stop(self) -> None:
        if self._copying is not None:
            await asyncio.gather(self._copying, return_exceptions=True)

    async def _copy(self) -> None:
        try:
            await asyncio.get_running_loop().run_in_executor(
                None, self._engine.replicate, round(1000 * self._timeout_s)
            )
        except Exception:
            log.exception("no replicas of hot pages were made; will retry")
