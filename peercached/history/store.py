"""Keeps events and departures over restarts, in state_dir.

One JSON file, replaced as a whole: {"format": 1, "number": of the last event, "events": [...],
"departed": [...]}, with the fields of Event and Departed. It only informs operators: a missing or
unreadable file counts as none, and the file is not synced.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from peercached.history.departures import Departed
from peercached.history.event_log import Event

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
        self.path = Path(folder) / f"history-{node_id}.json" if folder else None
        self._failed = False  # the last save

    def load(self) -> Remembered:
        if self.path is None:
            return Remembered()
        try:
            return _remembered(json.loads(self.path.read_text()))
        except FileNotFoundError:
            return Remembered()
        except (OSError, ValueError, TypeError, KeyError) as error:
            log.warning(
                "cannot read %s (%s): earlier events and lost nodes are not shown",
                self.path,
                str(error).partition("\n")[0],
            )
            return Remembered()

    def save(self, remembered: Remembered) -> None:
        if self.path is None:
            return
        text = json.dumps({"format": FORMAT, **asdict(remembered)})
        draft = self.path.with_suffix(".new")
        try:
            draft.write_text(text)
            draft.replace(self.path)
        except OSError as error:
            if not self._failed:
                log.warning(
                    "cannot write %s: %s (a restart forgets events and lost nodes)",
                    self.path,
                    error,
                )
            self._failed = True
        else:
            self._failed = False


def _remembered(document: Any) -> Remembered:
    if document["format"] != FORMAT:
        raise ValueError(f"format {document['format']} is not {FORMAT}")
    events = _EVENTS.validate_python(document["events"])
    number = max([int(document["number"]), *(event.number for event in events)])
    return Remembered(number, events, _DEPARTED.validate_python(document["departed"]))
