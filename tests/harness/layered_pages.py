"""Pages of an engine in memory of devices: memory by layer, as engines have it.

Stores pages with random bytes, gets them into other places, and compares all bytes of the memory,
also those between pages and rows.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Generic, NamedTuple, Protocol, TypeVar

from peercache_client import Client, Status
from peercache_client.device import DeviceMemory, Layout, Rows


class DeviceBytes(Protocol):
    """An allocation on a device. `offset`: where its bytes begin in `memory`."""

    memory: DeviceMemory
    offset: int
    size: int

    def read(self) -> bytes: ...
    def write(self, content: bytes | bytearray) -> None: ...
    def close(self) -> None: ...


Memory = TypeVar("Memory", bound=DeviceBytes)


class Shape(NamedTuple):
    layers: int = 4
    tokens: int = 16  # of a page
    row: int = 512  # bytes of a token in a layer
    gap: int = 0  # bytes behind each row on the device
    by_token: bool = True  # the order of the bytes in a page, as SGLang's page_first; or by layer
    allocations: int = 1  # layers are in each of them in turn

    @property
    def page_bytes(self) -> int:
        return self.layers * self.tokens * self.row

    @property
    def stride(self) -> int:
        """Bytes from a page to the next one, in a layer."""
        return self.tokens * (self.row + self.gap)


class LayeredPages(Generic[Memory]):
    def __init__(
        self, client: Client, pages: int, make: Callable[[int], Memory], shape: Shape
    ) -> None:
        self.shape, self.pages, self.page_bytes = shape, pages, shape.page_bytes
        self.layer_bytes = pages * shape.stride
        each = -(-shape.layers // shape.allocations)
        self.memories = [make(each * self.layer_bytes) for _ in range(shape.allocations)]
        self.regions = [client.register_device(one.memory) for one in self.memories]
        self.rows = [self._rows(layer) for layer in range(shape.layers)]
        self.layout = Layout(self.rows)

    @property
    def gpu(self) -> Memory:
        return self.memories[0]

    def _rows(self, layer: int) -> Rows:
        layers, tokens, row, gap, by_token, allocations = self.shape
        which, at = layer % allocations, layer // allocations * self.layer_bytes
        placed = Rows(
            self.regions[which],
            at=self.memories[which].offset + at,
            page_stride=self.shape.stride,
            row_bytes=row,
            page_at=layer * row * (1 if by_token else tokens),
            rows=tokens,
            row_pitch=row + gap,
            page_pitch=row * (layers if by_token else 1),
            stage=layer,
        )
        if gap or by_token:
            return placed
        return placed._replace(row_bytes=tokens * row, rows=1)

    def read(self) -> list[bytearray]:
        """All bytes of each allocation."""
        return [bytearray(one.read()) for one in self.memories]

    def runs(self, number: int) -> Iterator[tuple[int, int, int, int]]:
        """The runs of bytes of a page: number of the memory, offset in it, offset in the page,
        length."""
        for layer, rows in enumerate(self.rows):
            which = layer % self.shape.allocations
            begin = rows.at - self.memories[which].offset + number * rows.page_stride
            for row in range(rows.rows):
                here, there = rows.page_at + row * rows.page_pitch, begin + row * rows.row_pitch
                yield which, there, here, rows.row_bytes

    def draw(self, images: list[bytearray], number: int, page: bytes) -> None:
        """Puts a page where it belongs in bytes of `read`."""
        for which, there, here, length in self.runs(number):
            images[which][there : there + length] = page[here : here + length]

    def page(self, number: int) -> bytes:
        images, page = self.read(), bytearray(self.page_bytes)
        for which, there, here, length in self.runs(number):
            page[here : here + length] = images[which][there : there + length]
        return bytes(page)

    def write(self, images: list[bytearray]) -> None:
        for one, image in zip(self.memories, images, strict=True):
            one.write(image)

    def content(self, key: bytes) -> bytes:
        return random.Random(key).randbytes(self.page_bytes)

    def store(self, client: Client, keys: Sequence[bytes]) -> list[Status]:
        """Sets pages 0, 1 and so on."""
        images = self.read()
        for number, key in enumerate(keys):
            self.draw(images, number, self.content(key))
        self.write(images)
        return client.batch_set_device(keys, self.layout, range(len(keys)))

    def check(self, client: Client, keys: Sequence[bytes]) -> None:
        """Gets the pages in another order than they were set, and compares each byte."""
        numbers = list(range(len(keys)))
        random.Random(len(keys)).shuffle(numbers)
        expected = [bytearray(random.Random(1).randbytes(one.size)) for one in self.memories]
        self.write(expected)
        assert all(client.batch_get_device(keys, self.layout, numbers))
        for key, number in zip(keys, numbers, strict=True):
            self.draw(expected, number, self.content(key))
        got = self.read()
        wrong = [number for number, image in enumerate(expected) if got[number] != image]
        assert not wrong, "wrong bytes"

    def close(self) -> None:
        for region in self.regions:
            region.close()
        for one in self.memories:
            one.close()


@contextmanager
def layered_pages(
    client: Client, pages: int, make: Callable[[int], Memory], shape: Shape | None = None
) -> Iterator[LayeredPages[Memory]]:
    made = LayeredPages(client, pages, make, shape or Shape())
    try:
        yield made
    finally:
        made.close()
