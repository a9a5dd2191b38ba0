"""Keeps the newest view on disk."""

from __future__ import annotations

from peercached.background_writer import BackgroundWriter
from peercached.directory.placement import Change
from peercached.membership import View
from peercached.membership.store import Store


class ViewKeeper:
    """Use it on the event loop's thread."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._view = View.of(0, ())
        self._writer = BackgroundWriter(lambda: self._view, store.save)

    def view_changed(self, change: Change) -> None:
        self.keep(change.view)

    def keep(self, view: View) -> None:
        if view.number == 0 or self._store.path is None:
            return  # number 0 is a node on its own: nothing worth keeping
        self._view = view
        self._writer.changed()

    async def stop(self) -> None:
        """Returns when the newest view is written."""
        await self._writer.done()
