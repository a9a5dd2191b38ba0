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
ROWS_MAX: Final = 4096


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
    """The pieces of a page. They must fill it: each byte once, else its pages are `bad_range`."""

    def __init__(self, pieces: Sequence[Rows]) -> None:
        """ValueError."""
        if not 1 <= len(pieces) <= ROWS_MAX:
            raise ValueError(f"a layout of {len(pieces)} pieces: 1 to {ROWS_MAX}")
        self.page_bytes = sum(piece.rows * piece.row_bytes for piece in pieces)
        if not 1 <= self.page_bytes <= wire.LENGTH_BYTES_MAX:
            raise ValueError(f"a page of {self.page_bytes} bytes: 1 to {wire.LENGTH_BYTES_MAX}")
        self.regions = [piece.region for piece in pieces]
        self.segments = [region.segment for region in self.regions]
        try:
            self.packed = b"".join(
                _ROWS.pack(
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
                for piece in pieces
            )
        except struct.error as error:
            raise ValueError(f"a number of a piece is negative or too large: {error}") from None
