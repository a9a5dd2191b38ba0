"""The KV buffers of an engine. Page number N has one piece in each buffer."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from peercache_client import _ipc, memory
from peercache_client.block_hashes import MAIN_POOL, names
from peercache_client.client import Client
from peercache_client.connector.metadata import ConnectorMetadata
from peercache_client.extents import Extents
from peercache_client.identity import Topology
from peercache_client.packed_keys import PackedKeys
from peercache_client.status import Status


class Buffer(NamedTuple):
    """Contiguous pages of equal size."""

    address: int
    page_bytes: int
    pages: int


def buffers_of(kv_args: Any) -> list[Buffer]:
    """Reads SGLang's KVArgs: `kv_data_ptrs`, `kv_data_lens` (bytes) and `kv_item_lens` (bytes per
    page) have one entry for each buffer. ValueError."""
    pointers, sizes, items = kv_args.kv_data_ptrs, kv_args.kv_data_lens, kv_args.kv_item_lens
    if not len(pointers) == len(sizes) == len(items) or not pointers:
        raise ValueError(
            f"{len(pointers)} kv_data_ptrs, {len(sizes)} kv_data_lens and {len(items)} "
            "kv_item_lens: one for each buffer, and at least one"
        )
    buffers = []
    for i, (pointer, size_bytes, item_bytes) in enumerate(zip(pointers, sizes, items, strict=True)):
        if pointer <= 0 or item_bytes <= 0 or size_bytes < item_bytes:
            raise ValueError(
                f"buffer {i} has {size_bytes} bytes at {pointer:#x}, with {item_bytes} for a page: "
                "at least one page"
            )
        buffers.append(Buffer(int(pointer), int(item_bytes), int(size_bytes) // int(item_bytes)))
    return buffers


class HostBuffers:
    """Buffers in host memory. Shared memory is moved in place, other memory is copied once more.

    Moves pages. `hashes` are theirs. `keys` has one key per piece: all pieces of the first page,
    then of the second.
    Thread safe. Returns one Status per key. Daemon and network failures never raise.
    """

    def __init__(
        self, client: Client, buffers: Sequence[Buffer], metadata: ConnectorMetadata
    ) -> None:
        """ValueError for memory that this process cannot read and write, such as a GPU's."""
        topology = Topology.of(metadata)
        # The ranks of such a model have the same keys, and the first one to store gives the names.
        self._topology = topology._replace(tp_rank=0) if topology.replicated else topology
        self._page_tokens = metadata.page_size
        self.sizes_bytes = [buffer.page_bytes for buffer in buffers]  # of the pieces of one page
        self.pages = min(buffer.pages for buffer in buffers)
        self._client = client
        self._timeout_s = metadata.timeout_s
        self._buffers = list(buffers)
        self.why_copied = ""  # why the memory is not shared; empty if it is
        try:
            self._regions = Extents(client).regions(
                (buffer.address, buffer.page_bytes * buffer.pages) for buffer in buffers
            )
        except ValueError as error:
            self._regions = []
            # Keep only the reason: the rest is advice for users of Client.
            self.why_copied = str(error).partition(": ")[0]
            for i, buffer in enumerate(buffers):
                size_bytes = buffer.page_bytes * buffer.pages
                if not memory.is_writable_memory(buffer.address, size_bytes):
                    raise ValueError(
                        f"buffer {i}: this process cannot read and write all {size_bytes} bytes "
                        f"at {buffer.address:#x}. The connector moves pages of host memory only. "
                        "If the KV is in a GPU's memory, register buffers in host memory, and "
                        "copy pages between the two yourself"
                    ) from None
        self._starts = [
            buffer.address - region.address
            for buffer, region in zip(buffers, self._regions, strict=False)
        ]

    def set(
        self, hashes: Sequence[str], keys: PackedKeys, pages: Sequence[int], parent: str | None
    ) -> list[Status]:
        """When it returns, the pages may be reused."""
        client = self._client
        named = names(
            self._topology, [(MAIN_POOL, hashes, len(self.sizes_bytes), self._page_tokens)]
        )
        return self._move(client.batch_set, client.batch_set_buffers, keys, pages, parent, named)

    def get(
        self, _: Sequence[str], keys: PackedKeys, pages: Sequence[int], parent: str | None
    ) -> list[Status]:
        """When it returns, nothing writes into the pages any more."""
        client = self._client
        return self._move(client.batch_get, client.batch_get_buffers, keys, pages, parent)

    def _move(
        self,
        move: Callable[..., list[Status]],
        move_buffers: Callable[..., list[Status]],
        keys: PackedKeys,
        pages: Sequence[int],
        parent: str | None,
        named: dict[str, Any] | None = None,
    ) -> list[Status]:
        options = {"parent": parent, "timeout_s": self._timeout_s, **(named or {})}
        if not self._regions:
            return move_buffers(keys, self._views(pages), **options)
        return move(keys, *self._places(pages), **options)

    def _places(self, pages: Sequence[int]) -> tuple[Any, list[int], list[int]]:
        steps = list(zip(self._starts, self.sizes_bytes, strict=True))
        offsets = [start + page * size for page in pages for start, size in steps]
        one = all(region is self._regions[0] for region in self._regions)
        regions = self._regions[0] if one else self._regions * len(pages)
        return regions, offsets, self.sizes_bytes * len(pages)

    def _views(self, pages: Sequence[int]) -> list[memoryview]:
        return [
            _ipc.view_at(buffer.address + page * buffer.page_bytes, buffer.page_bytes)
            for page, buffer in itertools.product(pages, self._buffers)
        ]
