"""A memfd that plays the memory of a GPU for a daemon with `gpu = "stand-in"`."""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager

from peercache_client import Client
from peercache_client.device import DeviceMemory, Kind, Layout, Rows

_FAULTS_BYTES = 4096  # behind the memory: native/device/stand_in.h
_FAULTS = ("delay_us", "fail_after", "backwards", "held", "held_from")


class GpuStandIn:
    def __init__(self, size: int, number: int = 1, path: str = "") -> None:
        """`path`: one that another process has made, in /proc."""
        if path:
            self.fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            size = os.fstat(self.fd).st_size - _FAULTS_BYTES
        else:
            self.fd = os.memfd_create("gpu", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            os.ftruncate(self.fd, size + _FAULTS_BYTES)
        self._map = mmap.mmap(self.fd, size + _FAULTS_BYTES)
        self.size = size
        self.bytes = memoryview(self._map)[:size]
        self.memory = DeviceMemory(Kind.stand_in, size, number.to_bytes(16, "little"), fd=self.fd)

    def fault(self, **values: int) -> None:
        """Sets some of these: native/device/stand_in.h."""
        for name, value in values.items():
            struct.pack_into("<I", self._map, self.size + 4 * _FAULTS.index(name), value)

    def close(self) -> None:
        self.bytes.release()
        self._map.close()
        os.close(self.fd)


class LayeredPages:
    """Pages of an engine on a GPU: memory by layer, pages by token, as with SGLang's page_first."""

    LAYERS = 4
    ROW = 512  # bytes of a token in a layer

    def __init__(self, client: Client, pages: int, number: int = 1, tokens: int = 16) -> None:
        """`number`: of the GPU; `tokens`: of a page."""
        self.pages = pages
        self.tokens = tokens
        self.page_bytes = self.LAYERS * tokens * self.ROW
        self.layer_bytes = pages * tokens * self.ROW
        self.gpu = GpuStandIn(self.LAYERS * self.layer_bytes, number)
        self.region = client.register_device(self.gpu.memory)
        self.layout = Layout(
            [
                Rows(
                    self.region,
                    at=layer * self.layer_bytes,
                    page_stride=self.tokens * self.ROW,
                    row_bytes=self.ROW,
                    page_at=layer * self.ROW,
                    rows=self.tokens,
                    row_pitch=self.ROW,
                    page_pitch=self.LAYERS * self.ROW,
                    stage=layer,
                )
                for layer in range(self.LAYERS)
            ]
        )

    def _rows(self, number: int) -> Iterator[tuple[int, int]]:
        """Where each row of a page is: (in the page, on the GPU)."""
        for token in range(self.tokens):
            for layer in range(self.LAYERS):
                there = layer * self.layer_bytes + (number * self.tokens + token) * self.ROW
                yield (token * self.LAYERS + layer) * self.ROW, there

    def put(self, number: int, page: bytes) -> None:
        for here, there in self._rows(number):
            self.gpu.bytes[there : there + self.ROW] = page[here : here + self.ROW]

    def page(self, number: int) -> bytes:
        return b"".join(self.gpu.bytes[there : there + self.ROW] for _, there in self._rows(number))

    def close(self) -> None:
        self.region.close()
        self.gpu.close()


@contextmanager
def layered_pages(client: Client, pages: int, number: int = 1) -> Iterator[LayeredPages]:
    made = LayeredPages(client, pages, number)
    try:
        yield made
    finally:
        made.close()
