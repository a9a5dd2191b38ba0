"""Memory that somebody else has allocated, as regions: each shared file is registered once."""

from __future__ import annotations

import threading

from peercache_client import memory
from peercache_client.client import Client
from peercache_client.region import Region


class Extents:
    """A piece's memory is found by its address: the mapping around it, and the file behind that.

    Tensors are of no use here: K and V are two views of one file, which the daemon maps once.
    Thread safe.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._lock = threading.Lock()
        self._regions: dict[memory.Extent, Region] = {}

    def region(self, address: int, size_bytes: int) -> Region:
        """The region of all memory around these bytes. ValueError if they are not shared memory."""
        extent = memory.find_extent(address)
        if address + size_bytes > extent.address + extent.size_bytes:
            raise ValueError(f"the {size_bytes} bytes at {address:#x} are not in one mapping")
        with self._lock:
            region = self._regions.get(extent)
            if region is None:
                region = self._client.register_memory(extent.address, extent.size_bytes)
                self._regions[extent] = region
        return region
