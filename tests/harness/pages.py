"""A worker's pages in tests. Their bytes follow from their keys, and a get checks every byte."""

from collections.abc import Sequence
from pathlib import Path

from harness.call_times import SLACK_S, CallTimes, TimedClient
from harness.content import Content
from harness.waiting import CALL_S
from peercache_client import Status


def keys_of(name: str, count: int) -> list[bytes]:
    return [f"{name}/{number:06d}".encode() for number in range(count)]


class Pages:
    """One client with one region. A wrong byte raises AssertionError. A call that exceeded its
    deadline by more than `slack_s` raises it at the end of the block."""

    def __init__(
        self,
        socket_path: Path,
        *,
        page_bytes: int = 65_536,
        room_pages: int = 64,
        namespace: str = "test",
        timeout_s: float = CALL_S,
        slack_s: float = SLACK_S,
    ) -> None:
        self.client = TimedClient(str(socket_path), namespace, timeout_s=timeout_s, slack_s=slack_s)
        self.page_bytes = page_bytes
        self.region = self.client.alloc(page_bytes * room_pages)
        self._content = Content()

    def __enter__(self) -> "Pages":
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.client.close()
        if error is None:
            self.calls.check()

    @property
    def calls(self) -> CallTimes:
        return self.client.calls

    def set(self, keys: Sequence[bytes], sizes: Sequence[int] | None = None) -> list[Status]:
        sizes = sizes or [self.page_bytes] * len(keys)
        for key, page in zip(keys, self.slices(sizes), strict=True):
            self._content.write(key, page)
        return self.client.batch_set(keys, self.region, _offsets(sizes), list(sizes))

    def get(self, keys: Sequence[bytes], sizes: Sequence[int] | None = None) -> list[Status]:
        """Returns statuses, after comparing the bytes of every page that is ok."""
        sizes = sizes or [self.page_bytes] * len(keys)
        self.paint(0xA5)
        statuses = self.client.batch_get(keys, self.region, _offsets(sizes), list(sizes))
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
        """Whether the whole region still holds only this byte."""
        return bytes(self.region.view).count(byte) == len(self.region.view)

    def slices(self, sizes: Sequence[int]) -> list[memoryview]:
        offsets = _offsets(sizes)
        return [
            self.region.view[offset : offset + size]
            for offset, size in zip(offsets, sizes, strict=True)
        ]


def _offsets(sizes: Sequence[int]) -> list[int]:
    offsets, end = [], 0
    for size in sizes:
        offsets.append(end)
        end += size
    return offsets
