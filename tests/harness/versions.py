"""A worker that sets keys to one version after another, and tells which version it gets."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from harness.call_times import SLACK_S, TimedClient
from harness.waiting import CALL_S, eventually
from peercache_client import Status

WORD = 8


class Versions:
    """One client with one region. Every word of a page is its version."""

    def __init__(
        self,
        socket_path: Path,
        *,
        page_bytes: int = 4096,
        room_pages: int = 256,
        namespace: str = "test",
        timeout_s: float = CALL_S,
    ) -> None:
        self.client = TimedClient(str(socket_path), namespace, timeout_s=timeout_s, slack_s=SLACK_S)
        self.page_bytes = page_bytes
        self.statuses: list[Status] = []  # of the last call
        self.region = self.client.alloc(page_bytes * room_pages)

    def __enter__(self) -> Versions:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()

    def _columns(self, keys: Sequence[bytes]) -> tuple[list[int], list[int]]:
        return [i * self.page_bytes for i in range(len(keys))], [self.page_bytes] * len(keys)

    def set(self, keys: Sequence[bytes], version: int) -> list[Status]:
        page = version.to_bytes(WORD, "little") * (self.page_bytes // WORD)
        offsets, lengths = self._columns(keys)
        for at in offsets:
            self.region.view[at : at + self.page_bytes] = page
        self.statuses = self.client.batch_set(keys, self.region, offsets, lengths)
        return self.statuses

    def get(self, keys: Sequence[bytes]) -> list[int | None]:
        """Versions; None is a miss. AssertionError if a page mixes versions."""
        offsets, lengths = self._columns(keys)
        self.statuses = self.client.batch_get(keys, self.region, offsets, lengths)
        return [
            self._version(at) if status else None
            for at, status in zip(offsets, self.statuses, strict=True)
        ]

    def _version(self, at: int) -> int:
        page = bytes(self.region.view[at : at + self.page_bytes])
        word = page[:WORD]
        assert page == word * (self.page_bytes // WORD), "a page of two contents"
        return int.from_bytes(word, "little")

    def contains(self, keys: Sequence[bytes]) -> list[bool]:
        self.statuses = []
        return self.client.contains(keys)

    def remove(self, keys: Sequence[bytes], timeout_s: float | None = None) -> list[Status]:
        self.statuses = self.client.remove(keys, timeout_s=timeout_s)
        return self.statuses

    def remove_surely(self, keys: Sequence[bytes]) -> None:
        """Repeats the removal until it is confirmed."""
        gone = {Status.ok, Status.absent}
        eventually(lambda: set(self.remove(keys)) <= gone, 20, "a sure removal")

    def clear(self) -> bool:
        """Clears the namespace. Returns whether all nodes have been reached."""
        self.statuses = []
        return self.client.clear()
