"""The document of `peercachectl events` and `GET /api/v1/events`."""

from __future__ import annotations

from pydantic import Field

from peercached.admin.status import Document, Part


class Event(Part):
    """The events that a node saw (history/event_log.py)."""

    number: int = 0  # 1, 2, ...; goes on over restarts if there is a state_dir
    at: float = 0.0  # seconds since 1970
    kind: str = ""
    node_id: str = ""  # its subject
    text: str = ""


class Events(Document):
    """Oldest first."""

    node_id: str = ""  # who saw them
    events: list[Event] = Field(default_factory=list)
