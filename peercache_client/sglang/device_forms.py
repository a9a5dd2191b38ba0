"""How one device pool's pages are stored: pieces, keys, and the place of each layer in a piece.

A device pool has a tensor for each layer. A piece of ours has all layers of a page, in the order of
HiCache's host pools, so that nodes with HiCache and nodes with the linker share pages:

- page_first: token by token, and each token's layers in order
- page_first_direct: layer by layer, and each layer's tokens in order

Pages that HiCache does not have are layer by layer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, Final, NamedTuple

import torch

from peercache_client.identity import Topology
from peercache_client.sglang import pools
from peercache_client.sglang.host_shapes import HostShape, host_shape

_UNITS: Final = (torch.int64, torch.int32, torch.int16, torch.uint8)


class LayerPages(NamedTuple):
    """One layer's tensor, and the place of its rows in a piece. Sizes in units of the form."""

    pages: Any  # [page, row, unit], a view of SGLang's tensor
    piece: int
    offset: int  # of the first row
    pitch: int  # from one row to the next


class DeviceForm:
    """A KeyForm, and the device memory of the pages."""

    def __init__(self, entry: Any, topology: Topology, layout: str) -> None:
        """`entry`: SGLang's DevicePoolEntry; `layout`: page_first or page_first_direct. ValueError
        if a tensor of the entry belongs to no layer of the model."""
        self.name: str = entry.name
        self.indices_per_page: int = entry.page_size
        self._entry = entry
        self._rows: int = entry._row_span  # of a page in each tensor
        shape = host_shape(entry, layout)
        self.sizes_bytes = [self._rows * sum(map(_row_bytes, piece)) for piece in shape.pieces]
        self.suffixes = pools.piece_suffixes(
            entry.name,
            shape.attributes,
            topology,
            self.sizes_bytes,
            form="pieces" if shape.as_hicache else "linker",
            pool_class=shape.pool_class,
        )
        self.shared_by_tp_ranks = pools.shared_by_tp_ranks(entry.name, shape.attributes, topology)
        self.device: torch.device = entry.kv_buffer[0].device
        self.unit = _unit(entry.kv_buffer)
        by_token = shape.as_hicache and layout == "page_first"
        self._by_layer = self._layers(self._places(shape, by_token=by_token))

    @property
    def page_bytes(self) -> int:
        return sum(self.sizes_bytes)

    def page_numbers(self, indices: Any) -> list[int]:
        """The pages that these device indices fill. ValueError unless each is whole and in
        order."""
        rows: list[int] = self._entry.prepare_locations(indices)
        return [row // self._rows for row in rows]

    def arriving(self, layer: int | None) -> Sequence[LayerPages]:
        """The places that this layer of the model waits for; None: those of all layers."""
        if layer is None:
            return [each for some in self._by_layer.values() for each in some]
        return self._by_layer.get(layer, ())

    def _places(self, shape: HostShape, *, by_token: bool) -> list[LayerPages]:
        """In the order of the entry's tensors."""
        unit = self.unit.itemsize
        places = []
        for number, piece in enumerate(shape.pieces):
            sizes = [_row_bytes(tensor) // unit for tensor in piece]
            starts = accumulate(sizes[:-1], initial=0)
            for tensor, size, start in zip(piece, sizes, starts, strict=True):
                pages = _as_pages(tensor, self.unit, self._rows)
                if by_token:
                    places.append(LayerPages(pages, number, start, sum(sizes)))
                else:
                    places.append(LayerPages(pages, number, start * self._rows, size))
        return places

    def _layers(self, places: Sequence[LayerPages]) -> dict[int, list[LayerPages]]:
        """SGLang numbers the tensors of each component from 0."""
        firsts = list(accumulate(map(len, self._entry.components[:-1]), initial=0))
        numbers = {
            layer: [
                first + index
                for first in firsts
                for index in ((mapped,) if isinstance(mapped, int) else mapped)
            ]
            for layer, mapped in self._entry.layer_mapping.items()
        }
        left = set(range(len(places))).difference(*numbers.values())
        if left:
            raise ValueError(f"pool {self.name}: {len(left)} tensors belong to no layer")
        return {layer: [places[number] for number in some] for layer, some in numbers.items()}


def _row_bytes(tensor: Any) -> int:
    size: int = math.prod(tensor.shape[1:]) * tensor.element_size()
    return size


def _unit(tensors: Sequence[Any]) -> torch.dtype:
    """The widest integer that divides all rows and addresses. So copies are fast, and the same for
    every dtype."""
    numbers = [tensor.data_ptr() for tensor in tensors]
    numbers += [tensor.stride(0) * tensor.element_size() for tensor in tensors]
    numbers += map(_row_bytes, tensors)
    return next(unit for unit in _UNITS if all(number % unit.itemsize == 0 for number in numbers))


def _as_pages(tensor: Any, unit: torch.dtype, rows: int) -> Any:
    """A view as [page, row, unit]. The rows of a page follow each other."""
    flat = tensor.view(tensor.shape[0], -1).view(torch.uint8).view(unit)
    step = flat.stride(0)
    return flat.as_strided(
        (flat.shape[0] // rows, rows, flat.shape[1]), (rows * step, step, 1), flat.storage_offset()
    )
