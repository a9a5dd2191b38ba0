"""The last events of this node: `peercachectl events`, `/api/v1/events` and the dashboard."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal

EVENTS_MAX = 2048
KEPT_S = 86_400.0
TEXT_LENGTH_MAX = 500

Kind = Literal[
    "started",  # this daemon
    "joined",
    "restarted",
    "left",  # with a goodbye
    "lost",  # without one
    "finding",  # a health finding begins
    "over",  # a health finding ends
    "clear",
    "forget",
]


@dataclass(frozen=True, slots=True)
class Event:
    number: int  # 1, 2, ...; goes on over restarts if there is a state_dir
    at: float  # seconds since 1970
    kind: Kind
    node_id: str  # its subject
    text: str


class EventLog:
    """On the event loop's thread."""

    def __init__(self, own_id: str) -> None:
        self._own_id = own_id
        self._events: deque[Event] = deque(maxlen=EVENTS_MAX)
        self.number = 0  # of the last event

    def restore(self, number: int, events: Iterable[Event]) -> None:
        """Takes the events of earlier starts, oldest first. Call it before add()."""
        self.number = number
        self._events.extend(events)

    def add(self, kind: Kind, text: str, node_id: str = "") -> None:
        """`node_id`: by default this node."""
        self.number += 1
        about = node_id or self._own_id
        self._events.append(Event(self.number, time.time(), kind, about, text[:TEXT_LENGTH_MAX]))

    def after(self, number: int) -> list[Event]:
        """The events with a higher number, oldest first. Those older than a day are dropped."""
        oldest = time.time() - KEPT_S
        while self._events and self._events[0].at < oldest:
            self._events.popleft()
        return [event for event in self._events if event.number > number]

    def document(self, after: int) -> dict[str, Any]:
        """The fields of admin.events.Events."""
        return {"node_id": self._own_id, "events": [asdict(one) for one in self.after(after)]}
