"""Registers memory that another library allocated. Each shared file is registered once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from peercache_client import memory
from peercache_client.client import Client
from peercache_client.region import Region


class Extents:
    """Finds memory by its address: the mapping around it, and the file behind the mapping.

    Registering single tensors would be wrong: K and V are two views of one file, which the daemon
    maps once. Thread safe.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._regions: dict[memory.Extent, Region] = {}

    def regions(self, pieces: Iterable[tuple[int, int]]) -> list[Region]:
        """For each (address, size in bytes), the region of all memory around it. ValueError if it
        is not shared memory. The memory must stay mapped during the call."""
        mappings = memory.read_mappings()
        return [self._region(address, size_bytes, mappings) for address, size_bytes in pieces]

    def _region(self, address: int, size_bytes: int, mappings: Sequence[memory.Mapping]) -> Region:
        extent = memory.find_extent(address, mappings)
        if address + size_bytes > extent.address + extent.size_bytes:
            raise ValueError(f"the {size_bytes} bytes at {address:#x} are not in one mapping")
        region = self._regions.get(extent)
        if region is None:
            mine = self._client.register_memory(extent.address, extent.size_bytes)
            region = self._regions.setdefault(extent, mine)
            if region is not mine:
                mine.close()  # another thread was first
        return region
