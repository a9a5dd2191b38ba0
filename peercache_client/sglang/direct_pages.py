"""Moves pages between device tensors and the daemon, which copies them itself."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from peercache_client import Client, Region, cuda
from peercache_client.block_hashes import names
from peercache_client.device import Layout, Rows
from peercache_client.identity import Topology
from peercache_client.packed_keys import PackedKeys, concatenate, pack_with_suffixes
from peercache_client.rate_limited_log import RateLimitedLog
from peercache_client.sglang.device_forms import DeviceForm, LayerPages
from peercache_client.sglang.device_pages import PoolPages, Results, of_block, wait_for

# Of one request. It has a timeout for each so many bytes.
_REQUEST_BYTES: Final = 1 << 30
_TIMEOUT_BYTES: Final = 256 << 20


class DirectPages:
    """As StagedPages, without memory of this process: the daemon reads and writes the tensors of
    the pools. Thread safe.

    A daemon that cannot do that answers `bad_region` to each page, and the log says why.
    """

    def __init__(
        self,
        client: Client,
        forms: Sequence[DeviceForm],
        layers: int,
        timeout_s: float,
        log_rarely: RateLimitedLog,
        topology: Topology,
    ) -> None:
        """OSError if the driver cannot export the memory of a pool."""
        self._client = client
        self._topology = topology
        self._layers = layers
        self._timeout_s = timeout_s
        self._log_rarely = log_rarely
        self._regions: dict[int, Region] = {}  # by the address of the allocation
        self._layouts = {form.name: self._layouts_of(form) for form in forms}

    def _layouts_of(self, form: DeviceForm) -> list[Layout]:
        """One for each piece."""
        pieces: list[list[Rows]] = [[] for _ in form.sizes_bytes]
        for number in range(self._layers):
            for layer in form.arriving(number):
                pieces[layer.piece].append(self._rows(form, layer, number))
        return [Layout(rows) for rows in pieces]

    def _rows(self, form: DeviceForm, layer: LayerPages, number: int) -> Rows:
        unit = form.unit.itemsize
        pages, rows, units = layer.pages.shape
        page_stride, row_pitch = (unit * each for each in layer.pages.stride()[:2])
        row_bytes, page_pitch = units * unit, layer.pitch * unit
        if row_pitch == page_pitch == row_bytes:  # one row is quicker
            rows, row_bytes = 1, rows * row_bytes
        size = (pages - 1) * page_stride + (rows - 1) * row_pitch + row_bytes
        found = cuda.export(layer.pages.data_ptr(), size)
        try:
            if found.address not in self._regions:
                self._regions[found.address] = self._client.register_device(found.memory)
        finally:
            if found.memory.fd is not None:
                os.close(found.memory.fd)
        return Rows(
            self._regions[found.address],
            found.offset,
            page_stride,
            row_bytes,
            layer.offset * unit,
            rows,
            row_pitch if rows > 1 else 0,
            page_pitch if rows > 1 else 0,
            stage=number,
        )

    def set(self, wanted: Sequence[PoolPages], ready: Sequence[Any]) -> list[list[bool]]:
        wait_for(ready)
        results = Results(wanted, "set", self._log_rarely)
        for some in _requests(wanted):
            stored = self._client.batch_set_device(
                *self._request(some),
                timeout_s=self._timeout_of(some),
                **names(self._topology, map(of_block, (pages for _, pages in some))),
            )
            if not results.add(some, stored):
                break
        return results.of_all()

    def get(
        self, wanted: Sequence[PoolPages], ready: Sequence[Any], landed: Callable[[int], None]
    ) -> list[list[bool]]:
        wait_for(ready)
        results = Results(wanted, "got", self._log_rarely)
        told = 0

        def tell(layers: int) -> None:
            nonlocal told
            while told < layers:
                landed(told)
                told += 1

        requests = list(_requests(wanted))
        for some in requests:
            last = some is requests[-1]
            got = self._client.batch_get_device(
                *self._request(some),
                timeout_s=self._timeout_of(some),
                landed=tell if last else None,
            )
            if not results.add(some, got):
                break
        else:
            tell(self._layers)
        return results.of_all()

    def _timeout_of(self, some: Sequence[tuple[int, PoolPages]]) -> float:
        size = sum(len(pages.hashes) * pages.form.page_bytes for _, pages in some)
        return self._timeout_s * -(-size // _TIMEOUT_BYTES)

    def _request(
        self, some: Sequence[tuple[int, PoolPages]]
    ) -> tuple[PackedKeys, list[Layout], list[int]]:
        """Keys, layouts and numbers of all pieces of these pages."""
        keys = [pack_with_suffixes(pages.hashes, pages.form.suffixes) for _, pages in some]
        layouts: list[Layout] = []
        numbers: list[int] = []
        for _, pages in some:
            of_page = self._layouts[pages.form.name]
            layouts += of_page * len(pages.numbers)
            numbers += [number for number in pages.numbers for _ in of_page]
        return concatenate(keys), layouts, numbers

    def close(self) -> None:
        for region in self._regions.values():
            if not region.closed:
                region.close()


def _requests(wanted: Sequence[PoolPages]) -> Iterator[list[tuple[int, PoolPages]]]:
    """Pages of pools, by their numbers in `wanted`."""
    some: list[tuple[int, PoolPages]] = []
    used = 0
    for number, pages in enumerate(wanted):
        begin, total = 0, len(pages.hashes)
        while begin < total:
            left = -(-(_REQUEST_BYTES - used) // pages.form.page_bytes)
            end = min(total, begin + left)
            part = PoolPages(pages.form, pages.hashes[begin:end], pages.numbers[begin:end])
            some.append((number, part))
            used += (end - begin) * pages.form.page_bytes
            begin = end
            if used >= _REQUEST_BYTES:
                yield some
                some, used = [], 0
    if some:
        yield some
