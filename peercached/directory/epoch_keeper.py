"""Keeps namespace epochs on disk, off the event loop; a clear() answers when they are there."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from peercached.directory.epoch_store import EpochStore

log = logging.getLogger(__name__)


class NotKept(RuntimeError):
    """They are in force, but a restart would forget them."""


class EpochKeeper:
    """One write at a time, of all epochs as they are then; raises in between share the next."""

    def __init__(self, store: EpochStore, epochs: Callable[[], dict[bytes, int]]) -> None:
        self._store = store
        self._epochs = epochs
        self._wanted = 0  # counts raises
        self._kept = 0  # the last of them that is on disk
        self._task: asyncio.Task[None] | None = None
        self.problem = ""  # why the last write failed

    def raised(self) -> None:
        """An epoch has risen; it is written soon. Without an event loop, by the next kept()."""
        self._wanted += 1
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return
        self._begin()

    async def kept(self) -> None:
        """Until all that has risen so far is on disk. NotKept if it cannot be."""
        wanted = self._wanted
        if self._kept >= wanted:
            return
        # A write under way may have begun before the last raise, or fail: the next one counts.
        for _ in range(2):
            self._begin()
            assert self._task is not None
            await asyncio.shield(self._task)
            if self._kept >= wanted:
                return
        raise NotKept(f"namespace epochs cannot be kept: {self.problem}")

    def _begin(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.ensure_future(self._write())

    async def _write(self) -> None:
        while self._kept < (wanted := self._wanted):
            epochs = self._epochs()
            try:
                await asyncio.get_running_loop().run_in_executor(None, self._store.save, epochs)
            except OSError as error:
                if not self.problem:
                    log.warning("namespace epochs cannot be kept: %s", error)
                self.problem = str(error)
                return
            self.problem = ""
            self._kept = wanted

    async def stop(self) -> None:
        """What has risen is written, if it can be."""
        if self._task is not None:
            await self._task
