"""A page of a host pool as pages of ours: its pieces where they lie, or flattened into one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from peercache_client import memory
from peercache_client.sglang.placement import Place, Sharing, view_of

# Of SGLang's pools: page indices to (addresses, sizes), a page's pieces one after the other.
PieceFinder = Callable[[Any], tuple[list[int], list[int]]]


class PageForm(Protocol):
    """How one host pool's pages are stored. All methods may raise what SGLang's pools raise."""

    suffixes: tuple[str, ...]  # behind a page's hash, one for each of its pieces
    indices_per_page: int

    def source(self, hashes: Sequence[str], indices: Any) -> Place:
        """Where the bytes of these pages are. `indices`: indices_per_page for each hash."""

    def target(self, hashes: Sequence[str], indices: Any) -> Place:
        """Where the bytes of these pages shall go."""

    def arrived(self, place: Place, indices: Any, ok: Sequence[bool]) -> None:
        """The bytes of the pages that are `ok` are in `place`."""


def keys_of(form: PageForm, hashes: Sequence[str]) -> list[str]:
    if len(form.suffixes) == 1:
        suffix = form.suffixes[0]
        return [page_hash + suffix for page_hash in hashes]
    return [page_hash + suffix for page_hash in hashes for suffix in form.suffixes]


class InPlace:
    """Zero copy: the daemon reads and writes SGLang's buffers themselves."""

    def __init__(
        self,
        name: str,
        find: PieceFinder,
        indices_per_page: int,
        first_page: Any,
        suffixes_for: Callable[[list[int]], tuple[str, ...]],
        sharing: Sharing,
    ) -> None:
        """`first_page`: indices of any one page; `suffixes_for`: for the sizes of its pieces."""
        addresses, sizes = find(first_page)
        self.sizes_bytes = [int(size) for size in sizes]
        self.suffixes = suffixes_for(self.sizes_bytes)
        self.indices_per_page = indices_per_page
        self._find = find
        pieces = list(zip(map(int, addresses), self.sizes_bytes, strict=True))
        self._regions = sharing.regions(name, pieces)
        self._one_region = self._regions is not None and len(set(map(id, self._regions))) == 1

    @property
    def shared(self) -> bool:
        return self._regions is not None

    def source(self, hashes: Sequence[str], indices: Any) -> Place:
        return self.target(hashes, indices)

    def target(self, hashes: Sequence[str], indices: Any) -> Place:
        addresses, sizes = self._find(indices)
        pages = len(hashes)
        if sizes != self.sizes_bytes * pages or len(addresses) != len(sizes):
            raise ValueError(
                f"{pages} pages have pieces of other sizes than {self.sizes_bytes} bytes"
            )
        keys = keys_of(self, hashes)
        if self._regions is None:
            views = [
                memory.view_at(address, size)
                for address, size in zip(addresses, sizes, strict=True)
            ]
            return Place(keys, [], [], sizes, views)
        if self._one_region:
            region = self._regions[0]
            start = region.address
            offsets = [address - start for address in addresses]
            if offsets and min(offsets) < 0:
                raise ValueError("a page lies before the memory that was registered for its pool")
            return Place(keys, [region], offsets, sizes, [])
        regions = self._regions * pages
        offsets = [
            address - region.address for address, region in zip(addresses, regions, strict=True)
        ]
        return Place(keys, regions, offsets, sizes, [])

    def arrived(self, place: Place, indices: Any, ok: Sequence[bool]) -> None:
        pass


class Flattened:
    """One page of ours per page of SGLang's, through SGLang's own copy: for pools that cannot
    tell where their pieces are (Mamba with side states, an indexer in layer_first)."""

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
