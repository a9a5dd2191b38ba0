"""Turns the health findings of this node into events: one when a finding begins, one when it
ends."""

from __future__ import annotations

from peercached.history.event_log import EventLog
from peercached.node_status import NodeStatus

LOOK_S = 5.0


class FindingEvents:
    def __init__(self, events: EventLog, status: NodeStatus) -> None:
        self._events = events
        self._status = status
        self._present: dict[tuple[str, str], str] = {}  # code and subject -> the first sentence
        self._next_at = float("-inf")

    def look_soon(self) -> None:
        """A finding may begin now and end before the next look."""
        self._next_at = float("-inf")

    def tend(self, now: float) -> None:
        """Looks every LOOK_S seconds, and after look_soon(). Call it more often."""
        if now < self._next_at:
            return
        self._next_at = now + LOOK_S
        found = self._status.findings().present()
        for key, sentence in found.items():
            if key not in self._present:
                self._events.add("finding", sentence)
        for key, sentence in self._present.items():
            if key not in found:
                self._events.add("over", f"No longer: {sentence}")
        self._present = {key: self._present.get(key, found[key]) for key in found}
