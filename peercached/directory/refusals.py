"""Retries records that a full shard refused, with exponential backoff.

A full shard keeps no list of the records it refused, so only a whole resync can deliver them later.
A resync is expensive, and in vain while the shard is still full: hence the backoff.
"""

from __future__ import annotations

FIRST_S = 5.0
MAX_S = 600.0


class Refusals:
    """Sans-I/O; `now` is monotonic seconds."""

    def __init__(self) -> None:
        self._seen = 0
        self._pause_s = FIRST_S
        self._due: float | None = None

    def due(self, refused: int, in_sync: bool, now: float) -> bool:
        """True: resync now. Call it a few times a second, with the number of refusals so far and
        whether the last resync is over."""
        if refused != self._seen:
            self._seen = refused
            if self._due is None:
                self._due = now + self._pause_s
        if not in_sync:
            return False
        if self._due is None:
            self._pause_s = FIRST_S  # the last resync had no refusals
            return False
        if now < self._due:
            return False
        self._due = None
        self._pause_s = min(2 * self._pause_s, MAX_S)
        return True
