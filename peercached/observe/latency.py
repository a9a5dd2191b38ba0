"""Latencies as counts by size class, as in native/common/histogram.h."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

# Powers of two, 1 us to 33.6 s. Native histograms have these bounds, and some in between.
BOUNDS_US: tuple[int, ...] = tuple(1 << power for power in range(26))


@dataclass(frozen=True, slots=True)
class Latency:
    """The latencies of one kind, for one label (empty if the kind has no labels)."""

    kind: str
    label: str
    sum_s: float
    bounds_us: Sequence[int]  # inclusive upper bounds, ascending
    counts: Sequence[int]  # one more than bounds: the last counts all longer ones


def quantile_s(bounds_us: Sequence[int], counts: Sequence[int], share: float) -> float | None:
    """The latency in seconds that this share of the calls stayed below: linear within a bucket. A
    call beyond the last bound counts as equal to it. None: there are no calls."""
    left = share * sum(counts)
    if not left:
        return None
    low = 0
    for high, count in zip((*bounds_us, bounds_us[-1]), counts, strict=True):
        if left <= count:
            return (low + (high - low) * left / count) / 1e6
        left -= count
        low = high
    return bounds_us[-1] / 1e6


class LatencyCounts:
    """Latencies measured in the control plane. Not thread safe."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._sum_s = 0.0
        self._counts = [0] * (len(BOUNDS_US) + 1)

    def add(self, seconds: float) -> None:
        self._sum_s += seconds
        self._counts[bisect_left(BOUNDS_US, seconds * 1e6)] += 1

    def so_far(self) -> Latency:
        return Latency(self._kind, "", self._sum_s, BOUNDS_US, tuple(self._counts))
