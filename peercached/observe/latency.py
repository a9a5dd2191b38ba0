"""How long things took: counts by size class, as native/common/histogram.h keeps them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

# Powers of two, 1 us to 33.6 s; native histograms have these bounds too, and some in between.
BOUNDS_US: tuple[int, ...] = tuple(1 << power for power in range(26))


@dataclass(frozen=True, slots=True)
class Latency:
    """Of one kind of thing and one label (empty: the kind has none)."""

    kind: str
    label: str
    sum_s: float
    bounds_us: Sequence[int]  # inclusive upper bounds, ascending
    counts: Sequence[int]  # one more than bounds: the last is of all that took longer


class LatencyCounts:
    """What the control plane times itself. Not thread safe."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._sum_s = 0.0
        self._counts = [0] * (len(BOUNDS_US) + 1)

    def add(self, seconds: float) -> None:
        self._sum_s += seconds
        self._counts[bisect_left(BOUNDS_US, seconds * 1e6)] += 1

    def so_far(self) -> Latency:
        return Latency(self._kind, "", self._sum_s, BOUNDS_US, tuple(self._counts))
