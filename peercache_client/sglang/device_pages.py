"""Moves pages between device tensors and the daemon, through host memory of this process.

`DevicePages` is what the linker needs; `direct_pages` is the other implementation.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

import torch

from peercache_client import Client, Status
from peercache_client.block_hashes import names
from peercache_client.identity import Topology
from peercache_client.notes import say
from peercache_client.packed_keys import PackedKeys, concatenate, pack_with_suffixes
from peercache_client.rate_limited_log import RateLimitedLog
from peercache_client.sglang.device_forms import DeviceForm
from peercache_client.sglang.outcomes import explain, whole_pages

_ALIGN_BYTES: Final = 64


class PoolPages(NamedTuple):
    """Pages of one device pool."""

    form: DeviceForm
    hashes: list[str]
    numbers: list[int]  # each page's number in the pool


def of_block(pages: PoolPages) -> tuple[str, list[str], int, int]:
    """For block_hashes.names()."""
    form = pages.form
    return form.name, pages.hashes, len(form.suffixes), form.indices_per_page


class DevicePages(Protocol):
    """One bool per page: whether the daemon stored all of it (set), or all of it is in place (get).
    One thread at a time. `ready`: events that must have happened before device memory is read or
    written."""

    def set(self, wanted: Sequence[PoolPages], ready: Sequence[Any]) -> list[list[bool]]: ...

    def get(
        self, wanted: Sequence[PoolPages], ready: Sequence[Any], landed: Callable[[int], None]
    ) -> list[list[bool]]:
        """Calls `landed` for each layer, in order, once all pages have it; for none if a page is
        missing. If one could not be moved, their device memory may hold any bytes."""

    def close(self) -> None: ...


class Results:
    """Of `get` or `set`, which move whole pages in the order of the pools."""

    def __init__(self, wanted: Sequence[PoolPages], done: str, log_rarely: RateLimitedLog) -> None:
        self._wanted = wanted
        self._done = done
        self._log_rarely = log_rarely
        self._moved: list[list[bool]] = [[] for _ in wanted]

    def add(self, pools: Sequence[tuple[int, PoolPages]], statuses: Sequence[Status]) -> bool:
        """`pools`: their numbers, and some of their pages; `statuses`: of all pieces. Returns
        whether all were moved."""
        complete, at = True, 0
        for number, pages in pools:
            form, count = pages.form, len(pages.hashes)
            of_pool = statuses[at : at + count * len(form.suffixes)]
            at += len(of_pool)
            moved = whole_pages(of_pool, count, len(form.suffixes))
            explain(self._log_rarely, self._done, form.name, moved, of_pool)
            self._moved[number] += moved
            complete = complete and all(moved)
        return complete

    def of_all(self) -> list[list[bool]]:
        """False for pages that were not added."""
        return [
            moved + [False] * (len(pages.hashes) - len(moved))
            for moved, pages in zip(self._moved, self._wanted, strict=True)
        ]


class _Part(NamedTuple):
    """Pages of a pool that go through the staging region in one round."""

    number: int  # of the pool in `wanted`
    pages: PoolPages
    blocks: list[int]  # the offset of each piece's bytes in the region, page after page


class StagedPages:
    """Copies through a region that the daemon shares, in as many rounds as it takes.

    A round gathers the rows of whole pages with one operation per layer, into device memory in the
    order of the pieces, and moves that in one copy. So it takes as much device memory as the
    region has bytes. The host memory is pinned for CUDA.
    """

    def __init__(
        self,
        client: Client,
        device: torch.device,
        layers: int,
        staging_bytes: int,
        log_rarely: RateLimitedLog,
        topology: Topology,
    ) -> None:
        """OSError if there is no memory for the region."""
        self._client = client
        self._topology = topology
        self._device = device
        self._layers = layers
        self._log_rarely = log_rarely
        self._region = client.alloc(staging_bytes)
        self._staging = torch.frombuffer(self._region.view, dtype=torch.uint8)
        self._stream = None
        if device.type != "cpu":
            self._stream = torch.get_device_module(device).Stream(device)
        self._pinned = device.type == "cuda" and _pin(self._staging)

    def set(self, wanted: Sequence[PoolPages], ready: Sequence[Any]) -> list[list[bool]]:
        results = Results(wanted, "set", self._log_rarely)
        wait_for(ready)
        for parts in self._rounds(wanted):
            with self._on_stream():
                for part in parts:
                    self._gather(part)
                self._synchronize()
            blocks = names(self._topology, (of_block(part.pages) for part in parts))
            if not self._move(partial(self._client.batch_set, **blocks), parts, results):
                break
        return results.of_all()

    def get(
        self, wanted: Sequence[PoolPages], ready: Sequence[Any], landed: Callable[[int], None]
    ) -> list[list[bool]]:
        results = Results(wanted, "got", self._log_rarely)
        rounds = list(self._rounds(wanted))
        for parts in rounds:
            if not self._move(self._client.batch_get, parts, results):
                break
            if parts is rounds[0]:
                wait_for(ready)
            with self._on_stream():
                arrived = [self._arrived(part) for part in parts]
                if parts is not rounds[-1]:
                    for part, blocks in zip(parts, arrived, strict=True):
                        _scatter(part, blocks, None)
                    self._synchronize()
                else:
                    self._scatter_by_layer(parts, arrived, landed)
        return results.of_all()

    def close(self) -> None:
        if self._pinned:
            torch.cuda.cudart().cudaHostUnregister(self._staging.data_ptr())
        del self._staging
        self._region.close()

    # --- rounds ----------------------------------------------------------------------------

    def _rounds(self, wanted: Sequence[PoolPages]) -> Iterator[list[_Part]]:
        """Fills the region with whole pages, again and again."""
        parts: list[_Part] = []
        used = 0
        for number, pages in enumerate(wanted):
            begin, total = 0, len(pages.hashes)
            slack = _ALIGN_BYTES * len(pages.form.sizes_bytes)
            while begin < total:
                fit = (self._region.size - used - slack) // pages.form.page_bytes
                if fit <= 0:
                    if not parts:
                        raise ValueError(
                            f"a page of pool {pages.form.name} has {pages.form.page_bytes} bytes, "
                            f"and the staging region {self._region.size}"
                        )
                    yield parts
                    parts, used = [], 0
                    continue
                end = min(total, begin + fit)
                some = PoolPages(pages.form, pages.hashes[begin:end], pages.numbers[begin:end])
                blocks = []
                for size in pages.form.sizes_bytes:
                    blocks.append(used)
                    used += -(-size * (end - begin) // _ALIGN_BYTES) * _ALIGN_BYTES
                parts.append(_Part(number, some, blocks))
                begin = end
        if parts:
            yield parts

    def _move(self, move: Any, parts: Sequence[_Part], results: Results) -> bool:
        """One request for all pages of a round. Returns whether all were moved."""
        keys = concatenate([_keys(part) for part in parts])
        offsets = [offset for part in parts for offset in _offsets(part)]
        lengths = [
            size for part in parts for size in part.pages.form.sizes_bytes * len(part.pages.hashes)
        ]
        statuses = move(keys, self._region, offsets, lengths)
        return results.add([(part.number, part.pages) for part in parts], statuses)

    # --- copies ----------------------------------------------------------------------------

    def _gather(self, part: _Part) -> None:
        """From the pool's tensors to the region."""
        form, pages = part.pages.form, len(part.pages.numbers)
        index = torch.tensor(part.pages.numbers, device=self._device)
        staged = self._staged(part)
        blocks = staged if self._stream is None else [self._on_device(each) for each in staged]
        for layer in form.arriving(None):
            place = _place(blocks[layer.piece], pages, layer)
            place.copy_(layer.pages.index_select(0, index))
        if self._stream is not None:
            for target, block in zip(staged, blocks, strict=True):
                target.copy_(block, non_blocking=True)

    def _arrived(self, part: _Part) -> tuple[Any, list[Any]]:
        """The pages' index on the device, and their pieces there."""
        index = torch.tensor(part.pages.numbers, device=self._device)
        staged = self._staged(part)
        if self._stream is None:
            return index, staged
        blocks = [self._on_device(each) for each in staged]
        for source, block in zip(staged, blocks, strict=True):
            block.copy_(source, non_blocking=True)
        return index, blocks

    def _scatter_by_layer(
        self,
        parts: Sequence[_Part],
        arrived: Sequence[tuple[Any, list[Any]]],
        landed: Callable[[int], None],
    ) -> None:
        events = []
        for layer in range(self._layers):
            for part, blocks in zip(parts, arrived, strict=True):
                _scatter(part, blocks, layer)
            if self._stream is None:
                landed(layer)
            else:
                events.append(self._stream.record_event())
        for layer, event in enumerate(events):
            event.synchronize()
            landed(layer)

    def _staged(self, part: _Part) -> list[Any]:
        """The part's pieces in the region, in the form's unit."""
        form = part.pages.form
        pages = len(part.pages.hashes)
        return [
            self._staging[offset : offset + size * pages].view(form.unit)
            for offset, size in zip(part.blocks, form.sizes_bytes, strict=True)
        ]

    def _on_device(self, staged: Any) -> Any:
        return torch.empty_like(staged, device=self._device)

    def _on_stream(self) -> Any:
        """Also makes the pool's device the current one of this thread."""
        if self._stream is None:
            return nullcontext()
        return torch.get_device_module(self._device).stream(self._stream)

    def _synchronize(self) -> None:
        if self._stream is not None:
            self._stream.synchronize()


def _scatter(part: _Part, arrived: tuple[Any, list[Any]], layer: int | None) -> None:
    index, blocks = arrived
    for each in part.pages.form.arriving(layer):
        each.pages.index_copy_(0, index, _place(blocks[each.piece], len(index), each))


def _place(block: Any, pages: int, layer: Any) -> Any:
    """The layer's rows within the pages of a piece, as [page, row, unit]."""
    _, rows, units = layer.pages.shape
    return block.as_strided(
        (pages, rows, units),
        (block.numel() // pages, layer.pitch, 1),
        block.storage_offset() + layer.offset,
    )


def _keys(part: _Part) -> PackedKeys:
    return pack_with_suffixes(part.pages.hashes, part.pages.form.suffixes)


def _offsets(part: _Part) -> Iterator[int]:
    for page in range(len(part.pages.hashes)):
        for block, size in zip(part.blocks, part.pages.form.sizes_bytes, strict=True):
            yield block + page * size


def wait_for(events: Sequence[Any]) -> None:
    for event in events:
        event.synchronize()


def _pin(staging: Any) -> bool:
    """Registers the memory with CUDA, so that copies are faster and do not block."""
    code = torch.cuda.cudart().cudaHostRegister(staging.data_ptr(), staging.numel(), 0)
    if int(code) == 0:
        return True
    say(
        logging.WARNING,
        "cannot pin %d bytes of host memory for CUDA (error %d): loads and stores are slower",
        staging.numel(),
        int(code),
    )
    return False
