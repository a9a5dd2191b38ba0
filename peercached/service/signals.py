"""Signals. SIGTERM: hand warm pages to peers within the limit, leave, stop. SIGINT: stop. A second
SIGTERM or SIGINT: stop at once. SIGHUP: reload the configuration."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Coroutine
from typing import Any

from peercached.service.stopping import PART_S, exit_after
from peercached.service.supervised import Supervised

log = logging.getLogger("peercached")

AT_ONCE_S = 2.0  # the longest stop after a second signal


class Stop:
    """Whether the daemon should stop, and how."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.hand_over = False  # there is time to hand warm pages to peers

    def ask(self, hand_over: bool) -> None:
        self.hand_over = hand_over
        self.asked.set()

    async def unless_asked(self, work: Coroutine[Any, Any, None]) -> bool:
        """Runs `work`, and cancels it if a stop is requested. Returns whether it was completed."""
        task = asyncio.ensure_future(work)
        asked = asyncio.ensure_future(self.asked.wait())
        try:
            await asyncio.wait((task, asked), return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                return False
            task.result()
            return True
        finally:
            for each in (task, asked):
                each.cancel()
            await asyncio.wait((task, asked), timeout=PART_S)


def handle_signals(stop: Stop, daemon: asyncio.Task[Any], reloads: Reloads) -> None:
    """Call it on the running loop. A second stop signal cancels the task of the daemon."""
    loop = asyncio.get_running_loop()

    def on_stop(number: signal.Signals) -> None:
        if stop.asked.is_set():
            # A second signal: the operator has waited long enough for a clean stop.
            log.warning("second stop signal (%s): stopping at once", number.name)
            daemon.cancel()
            exit_after(AT_ONCE_S)
            return
        log.info("received %s: stopping", number.name)
        stop.ask(hand_over=number is signal.SIGTERM)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_stop, number)
    loop.add_signal_handler(signal.SIGHUP, reloads.ask)


class Reloads:
    """Runs one reload at a time, and another one if it was requested meanwhile."""

    def __init__(self, service: Supervised) -> None:
        self._service = service
        self._again = False
        self._task: asyncio.Task[None] | None = None

    def ask(self) -> None:
        self._again = True
        if self._task is None or self._task.done():
            self._task = asyncio.ensure_future(self._run())

    async def _run(self) -> None:
        while self._again:
            self._again = False
            try:
                await self._service.reload()
            except Exception:
                log.exception("the configuration could not be read again")
