"""When to try again what an owner had no room for.

A full shard refuses records and keeps no list of them, so only a whole resync brings them once
there is room. That costs as much as it is in vain, so it is tried after a while that doubles.
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
        """Called a few times a second with the number of refusals so far and whether the last
        resync is over. True: resync now."""
        if refused != self._seen:
            self._seen = refused
            if self._due is None:
                self._due = now + self._pause_s
        if not in_sync:
            return False
        if self._due is None:
            self._pause_s = FIRST_S  # the last resync left nothing out
            return False
        if now < self._due:
            return False
        self._due = None
        self._pause_s = min(2 * self._pause_s, MAX_S)
        return True
