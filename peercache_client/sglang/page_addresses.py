"""Computes the addresses of a host pool's pages without asking SGLang about every page again."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch

# A pool method: page indices to (addresses, sizes), all pieces of one page before the next.
PieceFinder = Callable[[Any], tuple[list[int], list[int]]]

_PIECE: Final = struct.Struct("=Q")
_PAGES_AT_ONCE: Final = 4096
# Checking this many pieces takes about 1 s, at registration. Larger pools are not cached.
_PIECES_MAX: Final = 1 << 20
_INDICES_MAX: Final = 1 << 26


class PageAddresses:
    """The offsets of a batch's pieces from `origin`, much faster than the pool's PieceFinder.

    The pool's method converts the index of every token to a Python int under the GIL, and then uses
    only the first of each page. That is the largest Python cost of a batch. In SGLang's layouts the
    address of a piece grows by a fixed step per page. We verify this once, by calling `find` for
    every page. If any page differs, `find` is used for good.
    """

    def __init__(
        self, find: PieceFinder, indices_per_page: int, indices: int, origin: int = 0
    ) -> None:
        """`indices`: size of the pool in indices. Raises the exceptions of `find`."""
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
        """Whether addresses are computed without `find`."""
        return self._packed is not None

    def __call__(self, indices: Any) -> Sequence[int]:
        """ValueError if the sizes differ from page 0's, or a page lies before `origin`."""
        step = self._step
        if self._packed is not None and len(indices) % step == 0:
            try:
                of_page = map(self._packed.__getitem__, indices[::step].tolist())
                return array("Q", b"".join(of_page))
            except KeyError:
                pass  # a page that was not verified with `find`
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
        except struct.error:  # a page lies before `origin`
            return False
        return sizes == self.sizes_bytes * len(heads) and computed.tolist() == [
            address - self._origin for address in addresses
        ]


class _Packed(dict[int, bytes]):
    """Maps a page's first index to the u64 offsets of its pieces, computed on first use. KeyError
    for an index that is not the start of a page of the pool."""

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
        """The first index of every `every`-th page."""
        return range(0, self._end, every * self._step)
