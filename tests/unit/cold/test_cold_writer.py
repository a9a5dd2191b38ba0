"""The writer chooses the pages of an object and the time. The store is a folder."""

from __future__ import annotations

import asyncio
import struct
from pathlib import Path
from typing import Any, cast

import pytest
from harness.cold import any_marker

from peercached.cold.format import ENTRY, Index, Record, of_log_path, parse_index
from peercached.cold.manifests import Manifests
from peercached.cold.requests import Requests
from peercached.cold.voids import ANY_NAMESPACE, Voids
from peercached.cold.writer import OBJECT_BYTES, POOL_SHARE, Writer

ID = bytes(range(16))
PAGE = 1024


def digest(number: int) -> bytes:
    return bytes([number]) * 16


class Node:
    """Pages are about to leave: each with the generation that it was born in."""

    def __init__(self, folder: Path, born: dict[int, int]) -> None:
        self.folder = folder
        self.born = born
        self.requests = Requests(f"file://{folder}", 1000)
        engine = cast(Any, self)
        self.voids = Voids(engine, self.requests, engine, any_marker())
        self.known = Manifests(engine, self.requests, self.voids)
        # Pages of a pool so small that two of them make an object.
        pool_bytes = POOL_SHARE * 2 * PAGE
        assert pool_bytes // POOL_SHARE < OBJECT_BYTES
        self.writer = Writer(engine, self.requests, self.voids, self.known, pool_bytes, 1 << 30, 1)
        self.under_way = b""

    def leaving_next(self, *asked: Any) -> list[tuple[bytes, int, bytes, int]]:
        self.under_way = asked[-1]
        left_out = {self.under_way[at : at + 16] for at in range(0, len(self.under_way), 16)}
        digests = [one for one in map(digest, self.born) if one not in left_out]
        return [(ID, 0, b"".join(digests), PAGE * len(digests))] if digests else []

    def copy_pages(self, digests: bytes, *_: object) -> tuple[bytes, bytes, bytes]:
        numbers = [digests[at] for at in range(0, len(digests), 16)]
        entries = [ENTRY.pack(digest(n), 0, i * PAGE, PAGE) for i, n in enumerate(numbers)]
        born = struct.pack(f"<{len(numbers)}I", *(self.born[n] for n in numbers))
        return b"".join(entries), b"".join(bytes([n]) * PAGE for n in numbers), born

    def add_object(self, *_: object) -> bool:
        return True

    def vouch_until(self, until_s: float) -> None: ...
    def drop_stored(self, digests: bytes) -> None: ...
    def drop_stored_below(self, *_: object) -> None: ...
    def learn(self, epochs: object) -> None: ...
    def raise_generation(self, generation: int) -> None: ...

    async def written(self) -> list[Index]:
        await asyncio.gather(*self.writer._puts)
        found = []
        for path in sorted((self.folder / "manifests").glob("*")):
            of = of_log_path("manifests", f"manifests/{path.name}")
            assert of is not None
            found.append(parse_index(path.read_bytes(), of[1]))
        return found


async def test_node_that_has_not_looked_at_the_removals_writes_nothing(tmp_path: Path) -> None:
    node = Node(tmp_path, {1: 0, 2: 0})
    assert not await node.writer.write()
    await node.voids.look()
    assert await node.writer.write()
    assert not await node.writer.write(), "both are under way"
    assert set(node.under_way) == {1, 2}
    [index] = await node.written()
    assert index.digests == [digest(1), digest(2)]


@pytest.mark.parametrize(("counter", "generation"), [(7, 3), (2, 2)])
async def test_object_is_of_the_lowest_generation_that_a_page_was_born_in(
    tmp_path: Path, counter: int, generation: int
) -> None:
    """A pool file may have come to another store, with a lower counter."""
    node = Node(tmp_path, {1: 5, 2: 3, 3: 4})
    await node.voids.put(Record(ANY_NAMESPACE, 0, generation=counter))
    assert await node.writer.write()
    [index] = await node.written()
    assert index.generation == generation


async def test_page_that_is_void_in_the_store_is_left_out(tmp_path: Path) -> None:
    """It was born below the floor: somebody may have removed it before a compaction."""
    node = Node(tmp_path, {1: 1, 2: 2, 3: 2})
    await node.voids.put(Record(ID, 0, generation=2))
    assert await node.writer.write()
    [index] = await node.written()
    assert index.digests == [digest(2), digest(3)]
    assert index.generation == 2
