"""Memory that this process shares with the daemon."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate

from peercache_client._ipc import Hold
from peercache_client.not_copied import NotCopied


class Region(NotCopied):
    """A byte range of a segment (a file). Offsets in calls count from its first byte.

    `Client.alloc` and `Client.register*` create it. Thread safe. It stays registered until `close`,
    or until its client is freed.
    """

    def __init__(
        self,
        hold: Hold,
        start: int,
        view: memoryview | None,
        address: int,
        table: dict[Region, None],
        on_close: Callable[[], None],
    ) -> None:
        """`table`: the client's regions that can be found by address."""
        self.segment = hold.segment
        self.start = start  # offset of the range in the segment, bytes
        self.size = self.segment.size_bytes if view is None else view.nbytes
        self.address = address  # in this process; 0 for device memory
        self._hold: Hold | None = hold
        self._view = view
        self._table = table
        self._on_close = on_close

    @property
    def view(self) -> memoryview:
        """The region's bytes. ValueError if it is closed, or is device memory."""
        view = self._view
        if self.closed:
            raise ValueError("this region is closed")
        if view is None:
            raise ValueError("this region is memory of a device, which this process cannot see")
        # A new view for each caller: the caller may release it, but ours must keep the memory.
        return memoryview(view)

    @property
    def open_size(self) -> int:
        """The size in bytes. ValueError if it is closed."""
        if self.closed:
            raise ValueError("this region is closed")
        return self.size

    @property
    def closed(self) -> bool:
        return self._hold is None

    def close(self) -> None:
        """Unregisters the region from the daemon. Existing views of it stay valid memory."""
        # Remove it first: once the view is gone, other memory may get the same address.
        self._table.pop(self, None)
        self._hold = None
        self._view = None
        self._on_close()

    def __enter__(self) -> Region:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{self.size} bytes at {self.address:#x}"
        return f"<Region {state}>"


class RegionIndex:
    """Finds regions by address. Regions may overlap."""

    def __init__(self, regions: Sequence[Region]) -> None:
        here = [region for region in regions if region.address and not region.closed]
        self._regions = sorted(here, key=lambda region: region.address)
        self._starts = [region.address for region in self._regions]
        # Highest end of each region and all before it. The search stops where this is too low.
        self._ends = list(accumulate((r.address + r.size for r in self._regions), max))

    def find(self, address: int, size: int) -> tuple[Region, int] | None:
        """A region that contains all these bytes, and their offset in it, or None."""
        at = bisect_right(self._starts, address) - 1
        while at >= 0 and self._ends[at] >= address + size:
            region = self._regions[at]
            if address + size <= region.address + region.size:
                return region, address - region.address
            at -= 1
        return None
