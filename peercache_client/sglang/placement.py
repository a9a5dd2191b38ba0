"""Where the pieces of a host pool's pages lie: in regions, or in unshared memory."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, NamedTuple

from peercache_client import Client, Region, _ipc
from peercache_client.extents import Extents
from peercache_client.notes import say
from peercache_client.packed_keys import PackedKeys


class Place(NamedTuple):
    """Pieces in order, with their keys. `regions` has one region per piece, or one for all. If the
    memory cannot be shared, `views` are set instead, and copied through a buffer."""

    keys: PackedKeys
    regions: list[Region]
    offsets: Sequence[int]
    lengths: Sequence[int]
    views: list[memoryview]
    kept: Sequence[Any] = ()  # keeps the memory of the views alive

    def as_views(self) -> list[memoryview]:
        if self.views:
            return self.views
        return [
            region.view[offset : offset + length]
            for region, offset, length in zip(
                self.region_of_each(), self.offsets, self.lengths, strict=True
            )
        ]

    def region_of_each(self) -> list[Region]:
        return self.regions * len(self.keys) if len(self.regions) == 1 else self.regions


class Sharing:
    """The shared memory of all host pools of one backend. Logs advice if a pool is not shared.

    Thread safe.
    """

    def __init__(self, client: Client, allocator: str) -> None:
        self._extents = Extents(client)
        self._allocator = allocator

    def regions(self, pool_name: str, pieces: Sequence[tuple[int, int]]) -> list[Region] | None:
        """The region of each (address, size in bytes) of one page. If one is not shared memory,
        logs advice and returns None."""
        try:
            return self._extents.regions(pieces)
        except ValueError as error:
            say(logging.WARNING, "%s", self._advice(pool_name, error))
            return None

    def _advice(self, pool_name: str, error: ValueError) -> str:
        if self._allocator == "shm":
            remedy = (
                'SGLang has not used "allocator": "shm" of the extra config. Give the extra config '
                "when SGLang starts, because a backend attached later cannot move the pool. Give "
                "it as JSON text, not as @file, because SGLang looks for the allocator in the text"
            )
        else:
            said = f'not "allocator": "{self._allocator}"' if self._allocator else "at its start"
            remedy = f'start SGLang with "allocator": "shm" in the extra config, {said}'
        return (
            f"SGLang's host pool {pool_name!r} is not in memory that the daemon can share "
            f"({error}). It works, but every page is copied once more through a buffer, by the "
            f"processor that SGLang needs. Remedy: {remedy}"
        )


def view_of(tensor: Any) -> memoryview:
    """The bytes of a contiguous CPU tensor. The caller keeps the tensor alive."""
    return _ipc.view_at(tensor.data_ptr(), tensor.numel() * tensor.element_size())
