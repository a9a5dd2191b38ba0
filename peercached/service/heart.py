"""Feeds the service manager's watchdog from the event loop, and sends the STATUS line.

The whole control plane runs on that loop. A hanging loop answers no peer and no operator, so its
pings must stop, too. A separate thread would keep pinging for a dead daemon.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol

from peercached.service.notify import Notifier

log = logging.getLogger(__name__)

STATUS_EVERY_S = 10.0
# Pings per watchdog time. More than one, so that a late ping under load does no harm.
_PINGS = 3


class Lined(Protocol):
    def line(self) -> str:
        """One line for the service manager."""


class Starting:
    def line(self) -> str:
        return "Starting."


class Heart:
    """On the event loop's thread. `status` gives the STATUS line."""

    def __init__(self, notifier: Notifier) -> None:
        self._notifier = notifier
        self.status: Lined = Starting()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Starts sending the status."""
        if not self._notifier.heard:
            return
        self._tasks.append(asyncio.ensure_future(self._notify()))

    def beat(self) -> None:
        """Starts feeding the watchdog; call it once the daemon is ready. The first ping arms the
        watchdog. Start-up may block the loop for longer than its limit, and has its own limit in
        the manager."""
        if self._notifier.watchdog_s:
            self._tasks.append(asyncio.ensure_future(self._beat(self._notifier.watchdog_s)))

    def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        self._tasks.clear()

    async def _beat(self, watchdog_s: float) -> None:
        while True:
            self._notifier.alive()
            await asyncio.sleep(watchdog_s / _PINGS)

    async def _notify(self) -> None:
        told = ""
        while True:
            await asyncio.sleep(STATUS_EVERY_S)
            try:
                status = self.status.line()
            except Exception:
                log.exception("cannot compose the status line for the service manager")
                continue
            if status != told:
                self._notifier.status(status)
                told = status
