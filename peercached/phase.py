"""How far the life of this daemon is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Phase:
    starting: bool = True
    stops_since: float | None = None  # monotonic seconds
