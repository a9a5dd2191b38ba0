"""Where the pieces of a host pool's pages are, without asking SGLang about every page again."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch

# Of SGLang's pools: page indices to (addresses, sizes), a page's pieces one after the other.
PieceFinder = Callable[[Any], tuple[list[int], list[int]]]

_PIECE: Final = struct.Struct("=Q")
_PAGES_AT_ONCE: Final = 4096
# A second or so, when the pool is registered. Larger pools are asked every time.
_PIECES_MAX: Final = 1 << 20
_INDICES_MAX: Final = 1 << 26


class PageAddresses:
    """Where a batch's pieces are, counted from `origin`, in a fraction of the PieceFinder's time.

    The pool's own makes a Python int of the index of every token, with the GIL held, of which it
    then uses each page's first: of all that a batch costs in Python that is the largest part. In
    SGLang's layouts a piece of page n lies at n times a distance from that of page 0. This is
    not taken for granted: `find` is asked once about every page, and for ever if one is elsewhere.
    """

    def __init__(
        self, find: PieceFinder, indices_per_page: int, indices: int, origin: int = 0
    ) -> None:
        """`indices`: how many the pool has. Raises what `find` does."""
        self._find = find
        self._step = indices_per_page
        self._origin = origin
        addresses, self.sizes_bytes = find(torch.arange(indices_per_page))
        self._packed: _Packed | None = None
        pages = indices // indices_per_page
        end = pages * indices_per_page
        if 2 <= pages <= _PIECES_MAX // max(1, len(addresses)) and end <= _INDICES_MAX:
            second, _ = find(torch.arange(indices_per_page, 2 * indices_per_page))
            if len(second) == len(addresses):
                packed = _Packed(addresses, second, indices_per_page, end, origin)
                some = packed.heads(_PAGES_AT_ONCE)
                self._packed = (
                    packed if all(self._as_found(packed, at, end) for at in some) else None
                )

    @property
    def regular(self) -> bool:
        """Whether `find` is not needed any more."""
        return self._packed is not None

    def __call__(self, indices: Any) -> Sequence[int]:
        """ValueError for pieces of other sizes than page 0 has, or below `origin`."""
        step = self._step
        if self._packed is not None and len(indices) % step == 0:
            try:
                of_page = map(self._packed.__getitem__, indices[::step].tolist())
                return array("Q", b"".join(of_page))
            except KeyError:
                pass  # of a page that `find` was not asked about
        addresses, sizes = self._find(indices)
        if sizes != self.sizes_bytes * (len(indices) // step) or len(addresses) != len(sizes):
            raise ValueError(f"pages have pieces of other sizes than {self.sizes_bytes} bytes")
        offsets = [address - self._origin for address in addresses]
        if offsets and min(offsets) < 0:
            raise ValueError("a page lies before the memory that was registered for its pool")
        return offsets

    def _as_found(self, packed: _Packed, begin: int, end: int) -> bool:
        heads = range(begin, min(begin + _PAGES_AT_ONCE * self._step, end), self._step)
        addresses, sizes = self._find(torch.arange(heads.start, heads.stop))
        try:
            computed = array("Q", b"".join(map(packed.of, heads)))
        except struct.error:  # one lies before `origin`
            return False
        return sizes == self.sizes_bytes * len(heads) and computed.tolist() == [
            address - self._origin for address in addresses
        ]


class _Packed(dict[int, bytes]):
    """By the first index of a page the u64 of each piece's address; made when first asked for.
    KeyError for what is no page of the pool."""

    def __init__(
        self, first: list[int], second: list[int], step: int, end: int, origin: int
    ) -> None:
        super().__init__()
        self._pieces = [(a - origin, b - a) for a, b in zip(first, second, strict=True)]
        self._step = step
        self._end = end

    def __missing__(self, head: int) -> bytes:
        if head % self._step or not 0 <= head < self._end:
            raise KeyError(head)
        packed = self[head] = self.of(head)
        return packed

    def of(self, head: int) -> bytes:
        page = head // self._step
        return b"".join([_PIECE.pack(first + page * apart) for first, apart in self._pieces])

    def heads(self, every: int) -> range:
        """Of each `every`-th page."""
        return range(0, self._end, every * self._step)
