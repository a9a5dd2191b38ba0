"""The reader brings pages of the store to its pool once, and no removed ones."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

from harness.cold import any_marker

from peercached.cold import voids as rules
from peercached.cold.format import ENTRY, Record, name_of, object_path
from peercached.cold.reader import WARM_SHARE, Reader
from peercached.cold.requests import Requests
from peercached.cold.voids import Voids

ID = bytes(range(16))
NAME, MANIFEST = name_of(b"object"), name_of(b"manifest")
PAGE = 1000
POOL = 40_000


def digest(number: int) -> bytes:
    return bytes([number]) * 16


class Node:
    """A node with objects of one page each, far from each other. It notes what lands."""

    def __init__(self, folder: Path) -> None:
        self.requests = Requests(f"file://{folder}", 1000)
        self.voids = Voids(cast(Any, self), self.requests, cast(Any, self), any_marker())
        self.why_not = ""
        self.reader = Reader(cast(Any, self), self.requests, self.voids, POOL, lambda: self.why_not)
        self.landed: list[bytes] = []
        self.gone: list[bytes] = []

    async def store(self, *numbers: int) -> None:
        for number in numbers:
            await self.requests.put(object_path(ID, number, NAME), bytes([number]) * PAGE)

    def stored_pages(
        self, digests: bytes, _: int
    ) -> list[tuple[bytes, bytes, bytes, int, int, bytes, bytes]]:
        return [
            (MANIFEST, NAME, ID, digests[at], 3, ENTRY.pack(digests[at : at + 16], 0, 0, PAGE), b"")
            for at in range(0, len(digests), 16)
        ]

    def land_pages(
        self,
        namespace_id: bytes,
        epoch: int,
        generation: int,
        entries: bytes,
        base: int,
        payloads: Any,
        *_: object,
    ) -> tuple[bytes, bytes, str]:
        assert bytes(payloads) == bytes([epoch]) * PAGE and base == 0 and generation == 3
        self.landed.append(entries[:16])
        return entries[:16], b"", ""

    def vouch_until(self, until_s: float) -> None: ...
    def drop_stored(self, digests: bytes) -> None: ...
    def drop_stored_below(self, *_: object) -> None: ...
    def learn(self, epochs: object) -> None: ...
    def raise_generation(self, generation: int) -> None: ...
    def drop_objects(self, names: bytes) -> None:
        self.gone.append(names)


async def test_pages_land_once_for_all_that_want_them(tmp_path: Path) -> None:
    node = Node(tmp_path)
    await node.store(1, 2)
    both = digest(1) + digest(2)
    await asyncio.gather(*(node.reader.fetch(both, 10.0) for _ in range(5)))
    assert sorted(node.landed) == [digest(1), digest(2)] and node.reader.pages == 2


async def test_removed_page_does_not_land(tmp_path: Path) -> None:
    node, other = Node(tmp_path), Node(tmp_path)
    await node.store(1, 2)
    await other.voids.put(Record(rules.ANY_NAMESPACE, 0, generation=2))
    # It voids the page in objects of generation 3.
    await other.voids.put(Record(ID, digest(1)[0], digest(1)))
    await node.reader.fetch(digest(1) + digest(2), 10.0)
    assert node.landed == [digest(2)] and node.reader.void == 1


async def test_node_that_may_not_reads_nothing_and_lands_nothing(tmp_path: Path) -> None:
    node = Node(tmp_path)
    await node.store(1)
    fetching = asyncio.ensure_future(node.reader.fetch(digest(1), 10.0))
    await asyncio.sleep(0)
    node.why_not = "it may have missed removals"  # on the way
    await fetching
    before = sum(node.requests.requests.values())
    await node.reader.fetch(digest(1), 10.0)
    assert not node.landed and sum(node.requests.requests.values()) == before


async def test_vanished_object_leaves_the_index(tmp_path: Path) -> None:
    node = Node(tmp_path)
    await node.reader.fetch(digest(1), 10.0)
    assert node.gone == [MANIFEST] and node.reader.vanished == 1 and not node.landed


async def test_warming_takes_a_share_of_the_pool_and_a_get_goes_on(tmp_path: Path) -> None:
    node = Node(tmp_path)
    pages = POOL // WARM_SHARE // PAGE
    numbers = range(1, 2 * pages + 1)
    await node.store(*numbers)
    node.reader.warm(b"".join(map(digest, numbers)))
    assert node.reader.crowded == pages
    await node.reader.fetch(b"".join(map(digest, numbers)), 10.0)
    assert sorted(node.landed) == [digest(number) for number in numbers]
