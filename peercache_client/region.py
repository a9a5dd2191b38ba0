"""Memory that this process shares with the daemon."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable
from types import TracebackType


class Segment:
    """One shared file, whatever the number of regions in it: what the daemon maps, once."""

    def __init__(self, fd: int) -> None:
        """Takes over `fd`."""
        status = os.fstat(fd)
        self.fd = fd
        # A dma-buf, memory of a GPU, has no size but the place of its end.
        self.of_device = status.st_size == 0 and os.lseek(fd, 0, os.SEEK_END) > 0
        self.size_bytes = os.lseek(fd, 0, os.SEEK_END) if self.of_device else status.st_size
        self.identity = (status.st_dev, status.st_ino)
        self.regions = 0
        # The daemon hung while writing here and might still do so: never used again.
        self.quarantined = False

    def __del__(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


class Region:
    """A window of a segment; offsets in calls count from its first byte.

    Made by `Client.alloc` and `Client.register*`. Thread safe. It lives until `close`, or as
    long as its client.
    """

    def __init__(
        self,
        segment: Segment,
        start: int,
        view: memoryview | None,
        address: int,
        on_close: Callable[[Region], None],
    ) -> None:
        self.segment = segment
        self.start = start  # of the window in the segment, bytes
        self.size = segment.size_bytes if view is None else view.nbytes
        self.address = address  # in this process; 0: not in it, but a device's
        self._view = view
        self._closed = False
        self._on_close = on_close

    @property
    def view(self) -> memoryview:
        """The bytes themselves. ValueError if it is closed, or memory of a device."""
        if self._closed:
            raise ValueError("this region is closed")
        if self._view is None:
            raise ValueError("this region is memory of a device, which this process cannot see")
        return self._view

    @property
    def open_size(self) -> int:
        """The size. ValueError if it is closed."""
        if self._closed:
            raise ValueError("this region is closed")
        return self.size

    @property
    def closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """Takes it from the daemon. Views of it that are still held stay valid memory."""
        if not self._closed:
            self._closed = True
            self._view = None
            self._on_close(self)

    def __enter__(self) -> Region:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{self.size} bytes at {self.address:#x}"
        return f"<Region {state}>"


def make_memfd(size_bytes: int, name: str) -> int:
    fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(fd, size_bytes)
    except BaseException:
        os.close(fd)
        raise
    return fd


def map_shared(fd: int, size_bytes: int) -> memoryview:
    return memoryview(mmap.mmap(fd, size_bytes))
