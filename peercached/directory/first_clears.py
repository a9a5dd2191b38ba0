"""How many namespaces a user or a node may have cleared for the first time.

Each of them takes a place for ever in the table of epochs, which every node keeps: a node that
comes back with pages of long ago must still hear that they are void. So nobody may fill it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

# An eighth of the table (native/engine/namespaces.h), at once and then again within a day.
FIRST_CLEARS_MAX = 8192
DAY_S = 86_400.0
ORIGINS_MAX = 4096


class FirstClears:
    """Of at most ORIGINS_MAX origins: the one that was silent the longest begins anew. `clock`: in
    seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()  # how many, and when

    def take(self, origin: str) -> bool:
        """False: it has had too many lately."""
        now = self._clock()
        left, at = self._left.pop(origin, (float(FIRST_CLEARS_MAX), now))
        left = min(left + (now - at) * FIRST_CLEARS_MAX / DAY_S, FIRST_CLEARS_MAX)
        self._left[origin] = (left - 1.0 if left >= 1.0 else left, now)
        if len(self._left) > ORIGINS_MAX:
            self._left.popitem(last=False)
        return left >= 1.0
