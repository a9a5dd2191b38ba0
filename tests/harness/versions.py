"""A worker that sets keys to one version after another, and tells which version it gets."""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Sequence
from operator import itemgetter
from pathlib import Path

from harness.call_times import SLACK_S, TimedClient
from harness.gpu_stand_in import GpuStandIn
from harness.layered_pages import LayeredPages, Shape
from harness.waiting import CALL_S, eventually
from peercache_client import Status
from peercache_client.device import Layout

WORD = 8


class Versions:
    """One client with memory for some pages. Every word of a page is its version."""

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
        self.make_room(room_pages)

    def make_room(self, pages: int) -> None:
        """In memory of this process. A forked child makes its own."""
        self.region = self.client.alloc(self.page_bytes * pages)

    def __enter__(self) -> Versions:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()

    def _offsets(self, keys: Sequence[bytes]) -> list[int]:
        return [place * self.page_bytes for place in range(len(keys))]

    def _batch_set(self, keys: Sequence[bytes]) -> list[Status]:
        return self.client.batch_set(keys, self.region, self._offsets(keys), self.page_bytes)

    def _batch_get(self, keys: Sequence[bytes]) -> list[Status]:
        return self.client.batch_get(keys, self.region, self._offsets(keys), self.page_bytes)

    def _put(self, place: int, page: bytes) -> None:
        at = place * self.page_bytes
        self.region.view[at : at + self.page_bytes] = page

    def _page(self, place: int) -> bytes:
        at = place * self.page_bytes
        return bytes(self.region.view[at : at + self.page_bytes])

    def set(self, keys: Sequence[bytes], version: int) -> list[Status]:
        page = version.to_bytes(WORD, "little") * (self.page_bytes // WORD)
        for place in range(len(keys)):
            self._put(place, page)
        self.statuses = self._batch_set(keys)
        return self.statuses

    def get(self, keys: Sequence[bytes]) -> list[int | None]:
        """Versions; None is a miss. AssertionError if a page mixes versions."""
        self.statuses = self._batch_get(keys)
        return [
            self._version(place) if status else None for place, status in enumerate(self.statuses)
        ]

    def _version(self, place: int) -> int:
        page = self._page(place)
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


class DeviceVersions(Versions):
    """The same with memory that plays a GPU. It copies slowly and backwards at times, or fails."""

    _numbers = itertools.count(1)
    _LOST_ONCE_IN = 500  # calls
    landed = 0  # pages

    def make_room(self, pages: int) -> None:
        self._rng = random.Random(next(self._numbers))
        self._room = pages
        self._register()

    def _register(self) -> None:
        """Memory that was lost is not used again."""
        number = os.getpid() << 32 | next(self._numbers)
        shape = Shape(layers=4, tokens=4, row=self.page_bytes // 16)
        self._pages = LayeredPages(
            self.client, self._room, lambda size: GpuStandIn(size, number), shape
        )

    def _ready(self, keys: Sequence[bytes]) -> tuple[Sequence[bytes], Layout, range]:
        if self._pages.regions[0].segment.quarantined or Status.region_lost in self.statuses:
            written = [self._page(place) for place in range(len(keys))]
            self._pages.close()
            self._register()
            for place, page in enumerate(written):
                self._put(place, page)
        fails = self._rng.randrange(self._LOST_ONCE_IN) == 0
        self._pages.gpu.fault(
            backwards=self._rng.randrange(2),
            delay_us=self._rng.choice([0, 0, 0, 100]),
            fail_after=self._rng.randint(1, 8) if fails else 0,
        )
        return keys, self._pages.layout, range(len(keys))

    def _batch_set(self, keys: Sequence[bytes]) -> list[Status]:
        return self.client.batch_set_device(*self._ready(keys))

    def _batch_get(self, keys: Sequence[bytes]) -> list[Status]:
        statuses = self.client.batch_get_device(*self._ready(keys))
        self.landed += statuses.count(Status.ok)
        return statuses

    def _put(self, place: int, page: bytes) -> None:
        for _, there, here, length in self._pages.runs(place):
            self._pages.gpu.bytes[there : there + length] = page[here : here + length]

    def _page(self, place: int) -> bytes:
        return b"".join(
            self._pages.gpu.bytes[there : there + length]
            for _, there, _, length in sorted(self._pages.runs(place), key=itemgetter(2))
        )

    def __exit__(self, *exception: object) -> None:
        self._pages.close()
        super().__exit__(*exception)
