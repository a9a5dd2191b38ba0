"""Rate limit on first clears of namespaces, per user or host.

A cleared namespace occupies an entry in every node's table of epochs for ever. The reason: a node
that returns with very old pages must still learn that they are void. So nobody may fill the table
alone. The limit of members counts by host, because one process can join under many node ids."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

# Burst, and refill per day: an eighth of the table (native/engine/storage/namespaces.h).
FIRST_CLEARS_MAX = 8192
DAY_S = 86_400.0
ORIGINS_MAX = 4096


class FirstClears:
    """A token bucket per origin (user, host, or all heartbeats), for ORIGINS_MAX of them: the least
    recently seen is forgotten. `clock` returns seconds. Not thread safe."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()  # tokens, time

    def take(self, origin: str) -> bool:
        """Takes a token; False if the origin has none left."""
        now = self._clock()
        left, at = self._left.pop(origin, (float(FIRST_CLEARS_MAX), now))
        left = min(left + (now - at) * FIRST_CLEARS_MAX / DAY_S, FIRST_CLEARS_MAX)
        self._left[origin] = (left - 1.0 if left >= 1.0 else left, now)
        if len(self._left) > ORIGINS_MAX:
            self._left.popitem(last=False)
        return left >= 1.0
