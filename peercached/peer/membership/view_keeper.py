"""Keeps the newest view on disk without holding up the event loop."""

from __future__ import annotations

import asyncio

from peercached.directory.placement import Change
from peercached.membership import View
from peercached.membership.store import Store


class ViewKeeper:
    """Writes one view at a time. While a write runs, only the newest view waits. Use it on the
    event loop's thread."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._wanted: View | None = None
        self._task: asyncio.Task[None] | None = None

    def view_changed(self, change: Change) -> None:
        self.keep(change.view)

    def keep(self, view: View) -> None:
        if view.number == 0 or self._store.path is None:
            return  # number 0 is a node on its own: nothing worth keeping
        self._wanted = view
        if self._task is None or self._task.done():
            self._task = asyncio.ensure_future(self._write())

    async def _write(self) -> None:
        while (view := self._wanted) is not None:
            self._wanted = None
            await asyncio.get_running_loop().run_in_executor(None, self._store.save, view)

    async def stop(self) -> None:
        """Returns when the newest view is written."""
        if self._task is not None:
            await self._task
