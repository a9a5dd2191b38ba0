"""Writes state to a file without holding up the event loop: a busy disk may take a second."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

State = TypeVar("State")


class BackgroundWriter(Generic[State]):
    """Use it on the event loop's thread. `state` returns a copy of the present state there, and
    `write` writes it on a thread of its own, one write at a time. A disk that hangs takes no thread
    of other work. `write` deals with its own failures. All changes made during a write share the
    next one."""

    def __init__(self, state: Callable[[], State], write: Callable[[State], object]) -> None:
        self._state = state
        self._write = write
        self._thread = ThreadPoolExecutor(1, "background-writer")
        self._wanted = 0  # changes until now
        self._done = 0  # changes that `write` has seen
        self._task: asyncio.Task[None] | None = None

    def changed(self) -> None:
        """Begins a write of the present state."""
        self._wanted += 1
        if self._task is None or self._task.done():
            self._task = asyncio.ensure_future(self._run())

    async def done(self) -> None:
        """Returns once `write` has seen all changes until now."""
        wanted = self._wanted
        while self._done < wanted:
            assert self._task is not None
            await asyncio.shield(self._task)

    async def _run(self) -> None:
        while self._done < (wanted := self._wanted):
            state = self._state()
            await asyncio.get_running_loop().run_in_executor(self._thread, self._write, state)
            self._done = wanted
