"""Restores events and departures at the start, and writes them while the node runs."""

from __future__ import annotations

from peercached.background_writer import BackgroundWriter
from peercached.history.departures import Departures
from peercached.history.event_log import EventLog
from peercached.history.store import HistoryStore, Remembered

# kill -9 loses the changes of so many seconds.
WRITE_EVERY_S = 5.0


class HistoryKeeper:
    """On the event loop's thread."""

    def __init__(self, events: EventLog, departures: Departures, store: HistoryStore) -> None:
        self._events = events
        self._departures = departures
        self._store = store
        self._write_at = float("-inf")
        before = store.load()
        events.restore(before.number, before.events)
        departures.restore(before.departed)
        self._written = events.number  # every departure and return is an event, too
        self._writer = BackgroundWriter(self._state, store.save)

    def tend(self, now: float) -> None:
        """Begins a write if anything has changed. Call it often; `now` is monotonic seconds."""
        if now >= self._write_at and self._has_changed:
            self._write_at = now + WRITE_EVERY_S
            self._writer.changed()

    async def stop(self) -> None:
        """Returns when all is written."""
        if self._has_changed:
            self._writer.changed()
        await self._writer.done()

    @property
    def _has_changed(self) -> bool:
        return self._store.path is not None and self._events.number != self._written

    def _state(self) -> Remembered:
        self._written = self._events.number
        latest_last = self._departures.all()[::-1]
        return Remembered(self._events.number, self._events.after(0), latest_last)
