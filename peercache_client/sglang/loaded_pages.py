"""Remembers loaded pages, which SGLang asks the linker to store again."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Final

# SGLang stores what it loaded after the next forward pass. A request that was aborted never does,
# and its pages may be evicted from the daemons and computed again later. Those must be stored.
_KEPT_S: Final = 60.0
_PAGES_MAX: Final = 1 << 18


class LoadedPages:
    """Pages that were loaded in the last minute, each until a store has skipped it. Thread safe.

    SGLang gives loaded KV to its tree like computed KV, and offloads each new node of the tree. If
    the linker stored these pages, every node that loads a page would keep a copy in its pool. The
    daemons have just had them, so a store skips them once.
    """

    def __init__(
        self, pages_max: int = _PAGES_MAX, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._pages_max = pages_max
        self._clock = clock
        self._loaded_s: dict[tuple[str, str], float] = {}  # by pool and hash, the oldest first
        self._lock = Lock()

    def add(self, pool: str, hashes: Sequence[str]) -> None:
        """Forgets the oldest pages if there are too many."""
        now_s = self._clock()
        with self._lock:
            for each in hashes:
                self._loaded_s.pop((pool, each), None)
                self._loaded_s[pool, each] = now_s
            while self._loaded_s:
                oldest = next(iter(self._loaded_s))
                if len(self._loaded_s) <= self._pages_max and self._is_new(self._loaded_s[oldest]):
                    return
                del self._loaded_s[oldest]

    def take(self, pool: str, hashes: Sequence[str]) -> list[bool]:
        """Whether each page is one of them. Forgets those."""
        with self._lock:
            loaded_s = [self._loaded_s.pop((pool, each), None) for each in hashes]
        return [each is not None and self._is_new(each) for each in loaded_s]

    def clear(self) -> None:
        with self._lock:
            self._loaded_s.clear()

    def _is_new(self, loaded_s: float) -> bool:
        return self._clock() - loaded_s < _KEPT_S
