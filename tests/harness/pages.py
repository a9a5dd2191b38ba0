"""A worker's pages in tests: their bytes follow from their keys, and every byte got is checked."""

import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from harness.waiting import CALL_S
from peercache_client import Client, Status
from peercached.demo.content import Content


def keys_of(name: str, count: int) -> list[bytes]:
    return [f"{name}/{number:06d}".encode() for number in range(count)]


class Pages:
    """One client with one region. A wrong byte is an AssertionError."""

    def __init__(
        self,
        socket_path: Path,
        *,
        page_bytes: int = 65_536,
        room_pages: int = 64,
        namespace: str = "test",
        timeout_s: float = CALL_S,
    ) -> None:
        self.client = Client(str(socket_path), namespace=namespace, timeout_s=timeout_s)
        self.page_bytes = page_bytes
        self.region = self.client.alloc(page_bytes * room_pages)
        self.longest_call_s = 0.0
        self._content = Content()

    def __enter__(self) -> "Pages":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.client.close()

    def set(self, keys: Sequence[bytes], sizes: Sequence[int] | None = None) -> list[Status]:
        sizes = sizes or [self.page_bytes] * len(keys)
        for key, page in zip(keys, self.slices(sizes), strict=True):
            self._content.write(key, page)
        return self._timed(self.client.batch_set, keys, sizes)

    def get(self, keys: Sequence[bytes], sizes: Sequence[int] | None = None) -> list[Status]:
        """Statuses; the bytes of every page that is ok have been compared."""
        sizes = sizes or [self.page_bytes] * len(keys)
        self.paint(0xA5)
        statuses = self._timed(self.client.batch_get, keys, sizes)
        for key, page, status in zip(keys, self.slices(sizes), statuses, strict=True):
            if status:
                mismatch = self._content.mismatch(key, page)
                assert mismatch is None, f"wrong bytes were served: {mismatch}"
        return statuses

    def has(self, keys: Sequence[bytes], sizes: Sequence[int] | None = None) -> bool:
        return all(self.get(keys, sizes))

    def paint(self, byte: int) -> None:
        self.region.view[:] = bytes([byte]) * len(self.region.view)

    def painted(self, byte: int) -> bool:
        """The whole region still holds nothing but this byte."""
        return bytes(self.region.view).count(byte) == len(self.region.view)

    def slices(self, sizes: Sequence[int]) -> list[memoryview]:
        offsets = _offsets(sizes)
        return [
            self.region.view[offset : offset + size]
            for offset, size in zip(offsets, sizes, strict=True)
        ]

    def _timed(self, call: object, keys: Sequence[bytes], sizes: Sequence[int]) -> list[Status]:
        assert callable(call)
        began = time.monotonic()
        statuses: list[Status] = call(keys, self.region, _offsets(sizes), list(sizes))
        self.longest_call_s = max(self.longest_call_s, time.monotonic() - began)
        return statuses


def _offsets(sizes: Sequence[int]) -> list[int]:
    offsets, end = [], 0
    for size in sizes:
        offsets.append(end)
        end += size
    return offsets
