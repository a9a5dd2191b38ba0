"""Feeds the service manager's watchdog from the event loop, and its STATUS line.

All of the control plane lives on that loop: a loop that hangs answers no peer and no operator, and
its pings stop with it. A thread of its own would go on pinging for a dead daemon.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from peercached.service.notify import Notifier

log = logging.getLogger(__name__)

STATUS_EVERY_S = 10.0
# Pings per watchdog time: one may come late, under load, and nothing happens.
_PINGS = 3


class Heart:
    """`describe` gives the STATUS line; called on the event loop."""

    def __init__(self, notifier: Notifier, describe: Callable[[], str]) -> None:
        self._notifier = notifier
        self._describe = describe
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Tells the status."""
        if not self._notifier.heard:
            return
        self._tasks.append(asyncio.ensure_future(self._tell()))

    def beat(self) -> None:
        """Feeds the watchdog, too; once the daemon is ready. The first ping winds the watchdog up,
        and a start may hold the loop for longer than that: the manager has another limit for it."""
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

    async def _tell(self) -> None:
        told = ""
        while True:
            await asyncio.sleep(STATUS_EVERY_S)
            try:
                status = self._describe()
            except Exception:
                log.exception("there is no status line")
                return
            if status != told:
                self._notifier.status(status)
                told = status
