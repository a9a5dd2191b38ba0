"""Memory of devices (GPUs), and how the pages of an engine lie in it.

An engine's memory is ordered by layer, so each page has one piece per layer. A `Layout` names the
pieces of page 0 and the distance to the next page. A page is named by its layout and its number.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from peercache_client import wire
from peercache_client._ipc import Segment
from peercache_client.region import Region

_ROWS: Final = struct.Struct("<QQQIIIIII")
ROWS_MAX: Final = 4096  # pieces
ROWS_OF_PAGE_MAX: Final = 65536


class Kind(IntEnum):
    """How the daemon imports an allocation: native/device/device.h."""

    stand_in = 1
    cuda_ipc = 2
    cuda_posix = 3


class DeviceMemory(NamedTuple):
    """An allocation on a device, as the daemon can import it. `cuda.export` makes it."""

    kind: Kind
    size: int  # bytes
    device: bytes  # the UUID of the device, 16 bytes
    handle: bytes = b""  # at most 64 bytes
    fd: int | None = None  # None: the handle is enough

    def segment(self) -> Segment:
        """OSError."""
        if self.fd is not None:
            return self._named_by(self.fd)
        # The file tells this allocation apart from others.
        fd = os.memfd_create("peercache-device", os.MFD_CLOEXEC)
        try:
            return self._named_by(fd)
        finally:
            os.close(fd)

    def _named_by(self, fd: int) -> Segment:
        return Segment.of_memory(fd, self.size, self.kind, self.device, self.handle)


class Rows(NamedTuple):
    """`rows` rows of `row_bytes` of each page. All numbers are bytes but `rows`."""

    region: Region
    at: int  # of the first row of page 0 in the region
    page_stride: int  # from a page to the next one in the region
    row_bytes: int
    page_at: int  # of the first row in the page
    rows: int = 1
    row_pitch: int = 0  # from a row to the next one in the region
    page_pitch: int = 0  # from a row to the next one in the page
    stage: int = 0  # below 4096; a get copies the lowest first


class Layout:
    """The pieces of a page. They fill it: each byte once."""

    def __init__(self, pieces: Sequence[Rows]) -> None:
        """ValueError, TypeError. The daemon checks what only it can know: pages that overlap in
        memory, or are beyond the region's end, are `bad_range`."""
        if not 1 <= len(pieces) <= ROWS_MAX:
            raise ValueError(f"a layout of {len(pieces)} pieces: 1 to {ROWS_MAX}")
        packed = b"".join(_packed(number, piece) for number, piece in enumerate(pieces))
        self.page_bytes = sum(piece.rows * piece.row_bytes for piece in pieces)
        if not 1 <= self.page_bytes <= wire.LENGTH_BYTES_MAX:
            raise ValueError(f"a page of {self.page_bytes} bytes: 1 to {wire.LENGTH_BYTES_MAX}")
        _check_filled(pieces)
        self.packed = packed
        self.regions = [piece.region for piece in pieces]
        self.segments = [region.segment for region in self.regions]


def _packed(number: int, piece: Rows) -> bytes:
    if not isinstance(piece, Rows) or not isinstance(piece.region, Region):
        raise TypeError(f"piece {number} is {piece!r:.80}: Rows of a region of register_device")
    if not piece.region.segment.of_device:
        raise ValueError(f"piece {number} is in memory of the host: use batch_set and batch_get")
    if not 0 <= piece.stage < ROWS_MAX:
        raise ValueError(f"piece {number} has stage {piece.stage}: 0 to {ROWS_MAX - 1}")
    try:
        return _ROWS.pack(
            piece.region.start + piece.at,
            piece.page_stride,
            piece.row_pitch,
            piece.row_bytes,
            piece.rows,
            piece.page_at,
            piece.page_pitch,
            piece.stage,
            0,
        )
    except struct.error as error:
        raise ValueError(
            f"piece {number} has a number that is negative or too large ({error}): {piece[1:]}"
        ) from None


def _check_filled(pieces: Sequence[Rows]) -> None:
    count = sum(piece.rows for piece in pieces)
    if count > ROWS_OF_PAGE_MAX:
        raise ValueError(f"a page of {count} rows: at most {ROWS_OF_PAGE_MAX}")
    rows = sorted(
        (piece.page_at + row * piece.page_pitch, piece.row_bytes, number)
        for number, piece in enumerate(pieces)
        for row in range(piece.rows)
    )
    end = 0
    for begin, size, number in rows:
        if begin != end or size == 0:
            raise ValueError(
                f"a row of piece {number} begins at byte {begin} of the page and has {size} bytes, "
                f"and the one before ends at {end}: rows must fill the page, each byte once"
            )
        end += size
