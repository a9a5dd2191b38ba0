"""Background tasks. The event loop keeps only weak references, so a task could be collected."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

log = logging.getLogger(__name__)

T = TypeVar("T")


async def retried(what: str, work: Callable[[], Awaitable[T]], pause_s: float) -> T:
    """Begins `work` again, after a pause, each time it fails. The log calls it `what`. For a
    background task that must go on: nobody looks at its exception."""
    while True:
        try:
            return await work()
        except Exception:
            log.exception("%s failed; will retry", what)
            await asyncio.sleep(pause_s)


class Tasks:
    """On the event loop's thread."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task: asyncio.Task[T] = asyncio.ensure_future(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    def cancel(self) -> None:
        for task in self._running:
            task.cancel()

    async def stop(self) -> None:
        """Cancels all tasks and waits until none runs any more."""
        self.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
