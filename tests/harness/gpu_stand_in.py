"""A memfd that plays the memory of a GPU for a daemon with `gpu = "stand-in"`."""

from __future__ import annotations

import mmap
import os
import struct
from contextlib import AbstractContextManager

from harness.layered_pages import LayeredPages, Shape, layered_pages
from peercache_client import Client
from peercache_client.device import DeviceMemory, Kind

_FAULTS_BYTES = 4096  # behind the memory: native/device/stand_in.h
_FAULTS = ("delay_us", "fail_after", "backwards", "held", "held_from", "refused")


class GpuStandIn:
    offset = 0

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

    def read(self) -> bytes:
        return bytes(self.bytes)

    def write(self, content: bytes | bytearray) -> None:
        self.bytes[:] = content

    def fault(self, **values: int) -> None:
        """Sets some of these: native/device/stand_in.h."""
        for name, value in values.items():
            struct.pack_into("<I", self._map, self.size + 4 * _FAULTS.index(name), value)

    def close(self) -> None:
        self.bytes.release()
        self._map.close()
        os.close(self.fd)


def stand_in_pages(
    client: Client, pages: int, number: int = 1, shape: Shape | None = None
) -> AbstractContextManager[LayeredPages[GpuStandIn]]:
    return layered_pages(client, pages, lambda size: GpuStandIn(size, number), shape)
