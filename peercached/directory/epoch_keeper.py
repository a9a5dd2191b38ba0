"""Writes namespace epochs to disk off the event loop. A clear() answers only after that."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from peercached.directory.epoch_store import EpochStore

if TYPE_CHECKING:
    from peercached._native import Engine

log = logging.getLogger(__name__)


class NotKept(RuntimeError):
    """The epochs are in force but not on disk: a restart would forget them."""


class EpochKeeper:
    """Runs one write at a time, always of all epochs. Epochs raised during a write share the next
    one. For one event loop."""

    def __init__(self, store: EpochStore, engine: Engine) -> None:
        self._store = store
        self._engine = engine
        self._wanted = 0  # counts raises
        self._kept = 0  # the last raise that is on disk
        self._task: asyncio.Task[None] | None = None
        self.problem = ""  # why the last write failed; empty: it did not

    def raised(self) -> None:
        """An epoch has risen: starts a write. Without an event loop, the next kept() does."""
        self._wanted += 1
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return
        self._begin()

    async def kept(self) -> None:
        """Returns once all raises so far are on disk. Raises NotKept if the write fails."""
        wanted = self._wanted
        if self._kept >= wanted:
            return
        # A write in progress may lack the last raise, or fail. So wait for a second one.
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
            epochs = dict(self._engine.namespace_epochs())
            try:
                await asyncio.get_running_loop().run_in_executor(None, self._store.save, epochs)
            except OSError as error:
                if not self.problem:
                    log.warning(
                        "cannot save the namespace epochs: %s (a restart may bring cleared pages "
                        "back)",
                        error,
                    )
                self.problem = str(error)
                return
            self.problem = ""
            self._kept = wanted

    async def stop(self) -> None:
        """Waits for the write in progress, if there is one."""
        if self._task is not None:
            await self._task
