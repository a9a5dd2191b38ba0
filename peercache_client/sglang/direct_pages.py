"""Moves pages between device tensors and the daemon, which copies them itself."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from peercache_client import Client, Region, Status, cuda
from peercache_client.device import Layout, Rows
from peercache_client.packed_keys import pack_with_suffixes
from peercache_client.rate_limited_log import RateLimitedLog
from peercache_client.sglang.device_forms import DeviceForm, LayerPages
from peercache_client.sglang.device_pages import PoolPages, wait_for
from peercache_client.sglang.outcomes import explain, whole_pages

# Of one request, whose timeout is that of a call.
_REQUEST_BYTES: Final = 256 << 20


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
        log_rarely: RateLimitedLog,
    ) -> None:
        """OSError if the driver cannot export the memory of a pool."""
        self._client = client
        self._layers = layers
        self._log_rarely = log_rarely
        self._regions: dict[int, Region] = {}  # by the address of the allocation
        self._layouts = {
            form.name: [
                Layout([self._rows(form, each) for each in of_piece])
                for of_piece in _by_piece(form)
            ]
            for form in forms
        }

    def _rows(self, form: DeviceForm, layer: LayerPages) -> Rows:
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
        )

    def set(self, wanted: Sequence[PoolPages], ready: Sequence[Any]) -> list[list[bool]]:
        wait_for(ready)
        return [self._move("set", self._client.batch_set_device, pages) for pages in wanted]

    def get(
        self, wanted: Sequence[PoolPages], ready: Sequence[Any], landed: Callable[[int], None]
    ) -> list[list[bool]]:
        wait_for(ready)
        results = [self._move("got", self._client.batch_get_device, pages) for pages in wanted]
        if all(map(all, results)):
            for layer in range(self._layers):
                landed(layer)
        return results

    def _move(self, done: str, move: Any, pages: PoolPages) -> list[bool]:
        form = pages.form
        result: list[bool] = []
        for some in _requests(pages):
            by_piece: list[list[Status]] = [
                move(pack_with_suffixes(some.hashes, (suffix,)), layout, some.numbers)
                for suffix, layout in zip(form.suffixes, self._layouts[form.name], strict=True)
            ]
            statuses = [status for of_page in zip(*by_piece, strict=True) for status in of_page]
            moved = whole_pages(statuses, len(some.hashes), len(form.suffixes))
            explain(self._log_rarely, done, form.name, moved, statuses)
            result += moved
        return result

    def close(self) -> None:
        for region in self._regions.values():
            if not region.closed:
                region.close()


def _by_piece(form: DeviceForm) -> list[list[LayerPages]]:
    """The layers of each piece, in order."""
    pieces: list[list[LayerPages]] = [[] for _ in form.sizes_bytes]
    for layer in form.arriving(None):
        pieces[layer.piece].append(layer)
    return pieces


def _requests(pages: PoolPages) -> Iterator[PoolPages]:
    step = max(1, _REQUEST_BYTES // pages.form.page_bytes)
    for begin in range(0, len(pages.hashes), step):
        end = begin + step
        yield PoolPages(pages.form, pages.hashes[begin:end], pages.numbers[begin:end])
