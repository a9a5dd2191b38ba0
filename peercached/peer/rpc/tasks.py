"""Background tasks. The event loop keeps only weak references, so a task could be collected."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


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
