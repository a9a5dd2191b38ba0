"""Events that a part tells and other parts act on. One reader takes them all (reactions.py).

A part never calls parts that are built later than itself. It tells an event instead.
"""

from __future__ import annotations

from typing import Protocol


class Event:
    """The part that tells an event defines its class."""


class Reader(Protocol):
    def take(self, event: Event) -> None: ...


class News:
    """On the event loop's thread. The reader takes an event before post() returns."""

    def __init__(self) -> None:
        self._reader: Reader | None = None

    def read_by(self, reader: Reader) -> None:
        self._reader = reader

    def post(self, event: Event) -> None:
        """Does nothing as long as there is no reader."""
        if self._reader is not None:
            self._reader.take(event)
