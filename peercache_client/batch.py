"""Turns a batch of pages into the columns of frames, with the cheap argument checks."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from peercache_client import wire
from peercache_client._ipc import Segment
from peercache_client.device import ROWS_MAX, Layout
from peercache_client.packed_keys import pack_keys
from peercache_client.region import Region
from peercache_client.wire import Flag, Key

Lengths = int | Sequence[int]

# Packed keys larger than this are checked one by one, and split into frames if needed.
_PLAIN_KEYS_BYTES: Final = 1 << 20
# Size of one frame when a batch is split: well below the wire's limit, and still a large batch.
_SPLIT_BODY_BYTES: Final = 16 << 20


class KeyFrame(NamedTuple):
    """The packed keys of one frame: `keys` keys of the batch, starting at index `begin`."""

    begin: int
    keys: int
    lengths: bytes  # u32 column
    parent: bytes  # empty, or u32 length and key bytes
    joined: bytes

    @property
    def flags(self) -> int:
        return Flag.parent if self.parent else 0

    @property
    def body(self) -> tuple[bytes, ...]:
        return self.lengths, self.parent, self.joined


class Place(NamedTuple):
    """Where pages lie, as columns of a frame. Only the daemon's region ids are missing."""

    segments: list[Segment]  # one for all pages, or one per page; with layouts, of their pieces
    offsets: bytes  # u64 column; with layouts, the pages' layouts and numbers
    lengths: bytes  # u32 column
    layout: bytes = b""  # the end of the body

    def of_pages(self, count: int) -> list[list[Segment]]:
        """The segments of each page."""
        if self.layout:
            return [self.segments] * count
        return [[segment] for segment in self.segments] * (count // len(self.segments))

    def ranges(self, count: int) -> list[tuple[object, int, int]]:
        """(file identity, offset, length) of each page. Pages that overlap have ranges that do."""
        if self.layout:
            return [(0, number, 1) for number in array("Q", self.offsets)]
        files = [segment.identity for segment in self.segments]
        offsets, lengths = array("Q", self.offsets), array("I", self.lengths)
        return list(zip(files * (count // len(files)), offsets, lengths, strict=True))

    def part(self, begin: int, end: int) -> Place:
        one_for_all = self.layout or len(self.segments) == 1
        segments = self.segments if one_for_all else self.segments[begin:end]
        offsets, lengths = self.offsets[8 * begin : 8 * end], self.lengths[4 * begin : 4 * end]
        return Place(segments, offsets, lengths, self.layout)


def key_frames(keys: Sequence[Key], parent: Key | None) -> Sequence[KeyFrame]:
    """Packs the keys into frames; nearly always one. TypeError, ValueError."""
    packed = pack_keys(keys)
    packed_parent = wire.pack_parent(parent)
    count = len(keys)
    if count == 0:
        return ()
    if count <= wire.PAGES_MAX and len(packed.joined) <= _PLAIN_KEYS_BYTES:
        return (KeyFrame(0, count, packed.lengths, packed_parent, packed.joined),)
    frames = []
    for begin, end in _split(keys):
        part = pack_keys([_travelling(key) for key in keys[begin:end]])
        if begin > 0:
            # The last key of one frame is the parent of the first key of the next.
            packed_parent = wire.pack_parent(_travelling(keys[begin - 1]) or None)
        frames.append(KeyFrame(begin, end - begin, part.lengths, packed_parent, part.joined))
    return frames


def exists_request(
    frame: KeyFrame,
    hold_s: float,
    page_tokens: int,
    page_keys: int,
    wait_s: float = 0.0,
    wait_for: int = 0,
    again: bool = False,
) -> tuple[int, tuple[bytes, ...]]:
    """Flags and body of an EXISTS. `wait_for`: keys of the frame. `again`: see wire.WAIT_AGAIN."""
    flags, body = frame.flags, frame.body
    if hold_s > 0:
        hold_ms = math.ceil(min(1000 * hold_s, wire.HOLD_MS_MAX))
        flags, body = flags | Flag.hold, (*body, wire.HOLD_MS.pack(hold_ms))
    if page_tokens:
        if not (0 < page_tokens < 1 << 16 and 0 < page_keys < 1 << 16):
            raise ValueError(f"a page of {page_tokens} tokens under {page_keys} keys: 1 to 65535")
        flags, body = flags | Flag.page, (*body, wire.PAGE.pack(page_tokens, page_keys))
    if wait_s > 0 and wait_for > 0:
        wait_ms = math.ceil(min(1000 * wait_s, wire.WAIT_MS_MAX))
        flags, body = (
            flags | Flag.wait,
            (*body, wire.WAIT.pack(wait_ms, wait_for | (wire.WAIT_AGAIN if again else 0))),
        )
    return flags, body


def overlapping(ranges: Sequence[tuple[Any, int, int]]) -> set[int]:
    """Indexes of the (space, begin, length) ranges that overlap an earlier range of the same space.
    Two pages cannot share bytes."""
    clashing = set()
    space, end = None, 0
    for i in sorted(range(len(ranges)), key=ranges.__getitem__):
        here, begin, length = ranges[i]
        if here == space and begin < end:
            clashing.add(i)
        else:
            space, end = here, begin + length
    return clashing


def overlapping_places(
    places: Sequence[tuple[Region, int] | None], lengths: Sequence[int]
) -> set[int]:
    """As `overlapping`, for pages in regions. A page without a place is skipped."""
    found = [(i, place[0], place[1]) for i, place in enumerate(places) if place is not None]
    ranges = [
        (region.segment.identity, region.start + offset, lengths[i]) for i, region, offset in found
    ]
    return {found[i][0] for i in overlapping(ranges)}


def place_pages(
    keys: Sequence[Key],
    region: Region | Sequence[Region],
    offsets: Sequence[int],
    lengths: Lengths,
) -> Place:
    count = len(keys)
    if len(offsets) != count:
        raise ValueError(f"{count} keys and {len(offsets)} offsets: one for each key")
    if isinstance(region, Region):
        regions = [region]
    else:
        regions = list(region)
        if len(regions) != count:
            raise ValueError(f"{count} keys and {len(regions)} regions: one, or one for each")
        for kind in set(map(type, regions)):
            if not issubclass(kind, Region):
                raise TypeError(f"a region must be a Region, not {kind.__name__}")
        if count > 1 and regions.count(regions[0]) == count:
            regions = regions[:1]
    for column in (offsets, lengths):
        if isinstance(column, (bytes, bytearray)):
            raise TypeError("offsets and lengths must be sequences of int, not bytes")
    try:
        offset_column = array("Q", offsets)
        if isinstance(lengths, int):
            length_column = array("I", (lengths,)) * count
        else:
            length_column = array("I", lengths)
    except OverflowError:
        bad = [n for n in (*offsets, *_as_list(lengths)) if n < 0 or n > wire.LENGTH_BYTES_MAX]
        raise ValueError(f"an offset or length is negative or too large: {bad[:3]}") from None
    if len(length_column) != count:
        raise ValueError(f"{count} keys and {len(length_column)} lengths: one for each key")
    if count == 0:
        return Place([], b"", b"")
    if len(regions) == 1:
        # Checks all pages with C functions. The slow loop only finds the wrong page to report.
        one_length = isinstance(lengths, int)
        longest = length_column[0] if one_length else max(length_column)
        shortest = longest if one_length else min(length_column)
        if shortest == 0 or max(offset_column) + longest > regions[0].open_size:
            _check_ranges(regions * count, offset_column, length_column)
        if regions[0].start:
            start = regions[0].start
            offset_column = array("Q", [start + offset for offset in offset_column])
    else:
        _check_ranges(regions, offset_column, length_column)
        offset_column = array(
            "Q", [one.start + offset for one, offset in zip(regions, offset_column, strict=True)]
        )
    return Place([one.segment for one in regions], offset_column.tobytes(), length_column.tobytes())


def place_in_layouts(
    keys: Sequence[Key], layout: Layout | Sequence[Layout], numbers: Sequence[int]
) -> Place:
    count = len(keys)
    of_page = [layout] * count if isinstance(layout, Layout) else layout
    if not isinstance(of_page, (list, tuple)) or not {Layout}.issuperset(map(type, of_page)):
        raise TypeError(f"layout is {layout!r:.80}: a Layout, or a list with one for each key")
    if len(numbers) != count or len(of_page) != count:
        raise ValueError(
            f"{count} keys, {len(of_page)} layouts and {len(numbers)} page numbers: one layout, or "
            "one for each key, and one number for each key"
        )
    layouts = list(dict.fromkeys(of_page))
    pieces = sum(len(each.regions) for each in layouts)
    if pieces > ROWS_MAX:
        raise ValueError(f"layouts of {pieces} pieces: at most {ROWS_MAX} in a call, split it")
    for region in {region for each in layouts for region in each.regions}:
        if region.closed:
            raise ValueError(f"a region of {region.size} bytes of the layout is closed")
    place = {each: number << 32 for number, each in enumerate(layouts)}
    try:
        column = array("I", numbers)
    except OverflowError:
        raise ValueError(
            f"page numbers {min(numbers)} to {max(numbers)}: 0 to {wire.PAGE_NUMBER_MAX}"
        ) from None
    places = array("Q", [place[each] | at for each, at in zip(of_page, column, strict=True)])
    return Place(
        [segment for each in layouts for segment in each.segments],
        places.tobytes(),
        array("I", [each.page_bytes for each in of_page]).tobytes(),
        b"".join(each.packed for each in layouts)
        + array("I", [*(len(each.regions) for each in layouts), len(layouts)]).tobytes(),
    )


def _as_list(lengths: Lengths) -> Sequence[int]:
    return [lengths] if isinstance(lengths, int) else lengths


def _check_ranges(regions: list[Region], offsets: array[int], lengths: array[int]) -> None:
    for i, (region, offset, length) in enumerate(zip(regions, offsets, lengths, strict=True)):
        size = region.open_size
        if length == 0:
            raise ValueError(f"page {i} has length 0: a page has at least one byte")
        if offset + length > size:
            raise ValueError(
                f"page {i} is bytes {offset} to {offset + length} of a region of {size} bytes"
            )


def _travelling(key: Key) -> bytes:
    """The encoded key, or no bytes if it is too long. The daemon answers `bad_key` to both, and the
    frame stays small."""
    encoded = wire.key_bytes(key)
    return encoded if len(encoded) <= wire.KEY_BYTES_MAX else b""


def _split(keys: Sequence[Key]) -> list[tuple[int, int]]:
    """Index ranges of keys, each small enough for one frame."""
    ranges = []
    begin = size = 0
    for i, key in enumerate(keys):
        key_cost = len(_travelling(key)) + 20
        if i - begin == wire.PAGES_MAX or (i > begin and size + key_cost > _SPLIT_BODY_BYTES):
            ranges.append((begin, i))
            begin, size = i, 0
        size += key_cost
    ranges.append((begin, len(keys)))
    return ranges
