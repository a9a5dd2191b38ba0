"""The keys of a batch in the format of a frame, without an object per key where possible."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import overload

from peercache_client import _ipc
from peercache_client.wire import Key, check_keys


class PackedKeys(Sequence[bytes]):
    """An immutable sequence of keys that all calls of `Client` take without repacking."""

    __slots__ = ("joined", "lengths")

    def __init__(self, lengths: bytes, joined: bytes) -> None:
        """`lengths`: u32 length of each key in bytes; `joined`: the concatenated keys."""
        self.lengths = lengths
        self.joined = joined

    def __len__(self) -> int:
        return len(self.lengths) // 4

    def __iter__(self) -> Iterator[bytes]:
        begin = 0
        for end in accumulate(memoryview(self.lengths).cast("I")):
            yield self.joined[begin:end]
            begin = end

    @overload
    def __getitem__(self, at: int) -> bytes: ...
    @overload
    def __getitem__(self, at: slice) -> list[bytes]: ...
    def __getitem__(self, at: int | slice) -> bytes | list[bytes]:
        """Slow: builds the list of all keys. Only a split batch needs it, which is rare."""
        return list(self)[at]


def pack_keys(keys: Sequence[Key]) -> PackedKeys:
    """TypeError."""
    if isinstance(keys, PackedKeys):
        return keys
    check_keys(keys)
    return PackedKeys(*_ipc.pack_keys(keys))


def pack_with_suffixes(stems: Sequence[str], suffixes: Sequence[str]) -> PackedKeys:
    """Joins each stem with each suffix: all keys of the first stem, then of the second, and so
    on."""
    count = len(suffixes)
    parts = [""] * (2 * count * len(stems))
    for i, suffix in enumerate(suffixes):
        parts[2 * i :: 2 * count] = stems
        parts[2 * i + 1 :: 2 * count] = [suffix] * len(stems)
    text = "".join(parts)
    if not text.isascii():
        return pack_keys([stem + suffix for stem in stems for suffix in suffixes])
    widths = set(map(len, stems))
    if len(widths) == 1:
        width = widths.pop()
        lengths = array("I", [width + len(suffix) for suffix in suffixes]) * len(stems)
    else:
        lengths = array("I", [len(stem) + len(suffix) for stem in stems for suffix in suffixes])
    return PackedKeys(lengths.tobytes(), text.encode())


def concatenate(batches: Sequence[PackedKeys]) -> PackedKeys:
    if len(batches) == 1:
        return batches[0]
    return PackedKeys(
        b"".join([batch.lengths for batch in batches]),
        b"".join([batch.joined for batch in batches]),
    )
