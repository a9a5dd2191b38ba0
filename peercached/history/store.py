"""Keeps events and departures over restarts, in state_dir.

One JSON file, replaced as a whole: {"format": 1, "number": of the last event, "events": [...],
"departed": [...]}, with the fields of Event and Departed. It only informs operators: a missing or
unreadable file counts as none, and the file is not synced.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pydantic import TypeAdapter

from peercached.history.departures import Departed
from peercached.history.event_log import Event
from peercached.state_file import StateFile, Unreadable

log = logging.getLogger(__name__)

FORMAT = 1

_EVENTS, _DEPARTED = TypeAdapter(list[Event]), TypeAdapter(list[Departed])


@dataclass(frozen=True, slots=True)
class Remembered:
    number: int = 0  # of the last event
    events: Sequence[Event] = ()
    departed: Sequence[Departed] = ()


class HistoryStore:
    """Stores nothing if `folder` is empty. load() and save() block on file I/O."""

    def __init__(self, folder: str, node_id: str) -> None:
        self._file = StateFile(folder, f"history-{node_id}.json", FORMAT)
        self.path = self._file.path

    def load(self) -> Remembered:
        try:
            return self._file.load(_remembered) or Remembered()
        except Unreadable as error:
            log.warning("%s: earlier events and lost nodes are not shown", error)
            return Remembered()

    def save(self, remembered: Remembered) -> None:
        self._file.save(asdict(remembered), "a restart forgets events and lost nodes")


def _remembered(document: Any) -> Remembered:
    events = _EVENTS.validate_python(document["events"])
    number = max([int(document["number"]), *(event.number for event in events)])
    return Remembered(number, events, _DEPARTED.validate_python(document["departed"]))
