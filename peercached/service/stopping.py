"""Every wait on the way to a stop is bounded: each part's, and that of the whole process."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Awaitable, Callable, Iterable
from typing import NoReturn

from peercached.timeout import within

log = logging.getLogger("peercached")

PART_S = 5.0
# The longest stop without a hand-over, with reserve for a busy machine.
STOP_S = 20.0
# The process ends itself so much earlier than the time that it told the service manager.
RESERVE_S = 1.0
EXIT_UNFINISHED = 1

_timers: list[threading.Timer] = []


async def end_all(stops: Iterable[Callable[[], Awaitable[object] | None]]) -> None:
    """Stops all parts in order. If one fails, or takes longer than PART_S, the log names it and the
    others go on."""
    for stop in stops:
        name = getattr(stop, "__qualname__", stop)
        try:
            if (ends := stop()) is not None:
                await within(PART_S, ends)
        except asyncio.TimeoutError:
            log.warning("stopping: gave up on %s after %g s", name, PART_S)
        except Exception:
            log.exception("stopping: %s failed", name)


def exit_after(seconds: float) -> None:
    """Ends the process after `seconds`, whatever hangs then: the event loop, a thread, a disk. The
    kernel frees all resources; peers and workers recover. The last call counts."""
    while _timers:
        _timers.pop().cancel()
    timer = threading.Timer(seconds, _exit, (seconds,))
    timer.daemon = True
    timer.start()
    _timers.append(timer)


def exit_now(code: int) -> NoReturn:
    """Ends the process, although threads of it may still wait for a store, a disk or a name server.
    Python would join them."""
    logging.shutdown()
    os._exit(code)


def _exit(seconds: float) -> None:
    log.error("could not stop within %g s: ending the process", seconds)
    exit_now(EXIT_UNFINISHED)
