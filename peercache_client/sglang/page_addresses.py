"""Where the pieces of a host pool's pages are, without asking SGLang about every page again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch

# Of SGLang's pools: page indices to (addresses, sizes), a page's pieces one after the other.
PieceFinder = Callable[[Any], tuple[list[int], list[int]]]

_PAGES_AT_ONCE: Final = 4096
# A second or so, when the pool is registered. Larger pools are asked every time.
_PIECES_MAX: Final = 1 << 20
_INDICES_MAX: Final = 1 << 26


class PageAddresses:
    """A PieceFinder that answers as the pool's own, and in a fraction of its time.

    The pool's own makes a Python int of the index of every token, with the GIL held, of which it
    then uses each page's first: of all that a batch costs in Python that is the largest part. In
    SGLang's layouts a piece of page n lies at n times a distance from that of page 0. This is
    not taken for granted: `find` is asked once about every page, and for ever if one is elsewhere.
    """

    def __init__(self, find: PieceFinder, indices_per_page: int, indices: int) -> None:
        """`indices`: how many the pool has. Raises what `find` does."""
        self._find = find
        self._step = indices_per_page
        self._pieces: list[tuple[int, int]] = []  # of each the address in page 0, and the distance
        addresses, self._sizes_bytes = find(torch.arange(indices_per_page))
        pages = indices // indices_per_page
        self._end = pages * indices_per_page
        if 2 <= pages <= _PIECES_MAX // max(1, len(addresses)) and self._end <= _INDICES_MAX:
            second, _ = find(torch.arange(indices_per_page, 2 * indices_per_page))
            if len(second) == len(addresses):
                self._pieces = [
                    (first, after - first) for first, after in zip(addresses, second, strict=True)
                ]
        if not all(map(self._as_found, range(0, pages, _PAGES_AT_ONCE))):
            self._pieces = []

    @property
    def regular(self) -> bool:
        """Whether `find` is not needed any more."""
        return bool(self._pieces)

    def __call__(self, indices: Any, origin: int = 0) -> tuple[list[int], list[int]]:
        """Addresses count from `origin`."""
        step = self._step
        heads = indices[::step].tolist() if self._pieces else []
        if (
            not heads
            or min(heads) < 0
            or max(heads) >= self._end
            or any(map(step.__rmod__, heads))
            or len(indices) % step
        ):
            addresses, sizes = self._find(indices)
            return [address - origin for address in addresses], sizes
        return self._computed([head // step for head in heads], origin)

    def _computed(self, pages: list[int] | range, origin: int = 0) -> tuple[list[int], list[int]]:
        pieces = [(first - origin, distance) for first, distance in self._pieces]
        addresses = [first + page * distance for page in pages for first, distance in pieces]
        return addresses, self._sizes_bytes * len(pages)

    def _as_found(self, begin: int) -> bool:
        if not self._pieces:
            return False
        end = min(begin + _PAGES_AT_ONCE, self._end // self._step)
        found = self._find(torch.arange(begin * self._step, end * self._step))
        return self._computed(range(begin, end)) == found
