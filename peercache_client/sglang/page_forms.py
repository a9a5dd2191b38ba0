"""How a host pool's page is stored: its pieces in place, or flattened into one page of ours."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch

from peercache_client import Region, _ipc
from peercache_client.packed_keys import PackedKeys, pack_with_suffixes
from peercache_client.sglang.page_addresses import PageAddresses, PieceFinder
from peercache_client.sglang.placement import Place, Sharing, view_of


class KeyForm(Protocol):
    """The form of the keys of one pool's pages."""

    suffixes: tuple[str, ...]  # one per piece; a key is the page's hash and a suffix
    indices_per_page: int


class PageForm(KeyForm, Protocol):
    """How one host pool's pages are stored. All methods may raise exceptions of SGLang's pools."""

    def source(self, hashes: Sequence[str], indices: Any) -> Place:
        """Where the bytes of these pages are. `indices`: indices_per_page per hash."""

    def target(self, hashes: Sequence[str], indices: Any) -> Place:
        """Where the bytes of these pages must be written."""

    def arrived(self, place: Place, indices: Any, ok: Sequence[bool]) -> None:
        """Called when the bytes of the `ok` pages have been written into `place`."""


def keys_of(form: KeyForm, hashes: Sequence[str]) -> PackedKeys:
    return pack_with_suffixes(hashes, form.suffixes)


def head_groups(pool: Any) -> PieceFinder:
    """The pieces of pages in SGLang's layout page_unified: one for each group of the pool's heads,
    with all layers, K and V. The order of their bytes does not depend on the number of groups."""
    layout = pool.page_unified_layout
    spans = [
        layout.chunk_span((0, layout.layer_num), group) for group in range(layout.head_group_num)
    ]
    step = int(getattr(pool, "logical_page_size", None) or pool.page_size)
    if step != layout.page_size:  # with DCP
        raise ValueError(f"pages of {step} tokens, but a rank has {layout.page_size} of them")

    def find(indices: Any) -> tuple[list[int], list[int]]:
        start = pool.kv_buffer.data_ptr()
        pages = [
            start + index // step * layout.bytes_per_page for index in indices[::step].tolist()
        ]
        addresses = [page + offset for page in pages for offset, _ in spans]
        return addresses, [length for _, length in spans] * len(pages)

    return find


class InPlace:
    """Zero copy: the daemon reads and writes SGLang's own buffers."""

    def __init__(
        self,
        name: str,
        find: PieceFinder,
        indices_per_page: int,
        indices: int,
        suffixes_for: Callable[[list[int]], tuple[str, ...]],
        sharing: Sharing,
    ) -> None:
        """`indices`: size of the pool in indices; `suffixes_for`: maps piece sizes to suffixes."""
        addresses, sizes = find(torch.arange(indices_per_page))
        self.sizes_bytes = [int(size) for size in sizes]
        self._lengths = array("I", self.sizes_bytes)
        self.suffixes = suffixes_for(self.sizes_bytes)
        self.indices_per_page = indices_per_page
        pieces = list(zip(map(int, addresses), self.sizes_bytes, strict=True))
        self._regions = sharing.regions(name, pieces)
        self._region: Region | None = None  # set if all pieces are in one region
        if self._regions is not None and len(set(map(id, self._regions))) == 1:
            self._region = self._regions[0]
        origin = self._region.address if self._region is not None else 0
        self._find = PageAddresses(find, indices_per_page, indices, origin)

    @property
    def shared(self) -> bool:
        return self._regions is not None

    def source(self, hashes: Sequence[str], indices: Any) -> Place:
        return self.target(hashes, indices)

    def target(self, hashes: Sequence[str], indices: Any) -> Place:
        offsets = self._find(indices)
        keys = keys_of(self, hashes)
        lengths = self._lengths * len(hashes)
        if self._region is not None:
            return Place(keys, [self._region], offsets, lengths, [])
        if self._regions is None:
            views = [_ipc.view_at(*piece) for piece in zip(offsets, lengths, strict=True)]
            return Place(keys, [], [], lengths, views)
        regions = self._regions * len(hashes)
        offsets = [address - each.address for address, each in zip(offsets, regions, strict=True)]
        return Place(keys, regions, offsets, lengths, [])

    def arrived(self, place: Place, indices: Any, ok: Sequence[bool]) -> None:
        pass


class Flattened:
    """One page of ours per page of SGLang's, copied by SGLang. For pools that cannot report the
    addresses of their pieces (Mamba with side states, an indexer in layer_first)."""

    def __init__(self, pool: Any, indices_per_page: int, suffix: str) -> None:
        self.suffixes: tuple[str, ...] = (suffix,)
        self.indices_per_page = indices_per_page
        self._pool = pool

    def source(self, hashes: Sequence[str], indices: Any) -> Place:
        return self._place(
            hashes, [self._pool.get_data_page(index).contiguous() for index in self._heads(indices)]
        )

    def target(self, hashes: Sequence[str], indices: Any) -> Place:
        return self._place(hashes, [self._pool.get_dummy_flat_data_page() for _ in hashes])

    def arrived(self, place: Place, indices: Any, ok: Sequence[bool]) -> None:
        for index, page, good in zip(self._heads(indices), place.kept, ok, strict=True):
            if good:
                self._pool.set_from_flat_data_page(index, page)

    def _heads(self, indices: Any) -> list[int]:
        heads: list[int] = indices[:: self.indices_per_page].tolist()
        return heads

    def _place(self, hashes: Sequence[str], pages: list[Any]) -> Place:
        views = [view_of(page) for page in pages]
        return Place(keys_of(self, hashes), [], [], [view.nbytes for view in views], views, pages)
