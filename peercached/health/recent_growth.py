"""How much counters grew lately, so that a finding ends some time after its cause."""

from __future__ import annotations

import time
from collections import deque

HOUR_S = 3600.0
DAY_S = 86_400.0
# Samples kept of a counter. Growth between two samples counts with the earlier one, so a finding
# may end 1/64 of the window early.
_SAMPLES_MAX = 64


class Recent:
    """One counter. Call grown() at least once in a while: growth before the first call counts as
    growth at that call."""

    def __init__(self, window_s: float = HOUR_S) -> None:
        self._window_s = window_s
        self._samples: deque[tuple[float, int]] = deque()  # (time, count before it)
        self._count = 0

    def grown(self, count: int) -> int:
        """The counter is at `count` now. Returns its growth within the window."""
        now = time.monotonic()
        if count > self._count:
            newest = self._samples[-1][0] if self._samples else float("-inf")
            if now - newest >= self._window_s / _SAMPLES_MAX:
                self._samples.append((now, self._count))
        self._count = count
        while self._samples and now - self._samples[0][0] > self._window_s:
            self._samples.popleft()
        return count - self._samples[0][1] if self._samples else 0


class Lately:
    """Any number of counters, by name."""

    def __init__(self) -> None:
        self._counters: dict[str, Recent] = {}

    def grown(self, name: str, count: int, window_s: float = HOUR_S) -> int:
        """See Recent.grown()."""
        counter = self._counters.get(name)
        if counter is None:
            counter = self._counters[name] = Recent(window_s)
        return counter.grown(count)
