"""Sweeping and compacting a store, which is a folder. The data plane's index is a dict."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

import pytest
from harness.clock import seconds
from harness.cold import any_marker

from peercached.cold import manifests, sweeper
from peercached.cold.compaction import Compaction
from peercached.cold.format import (
    ENTRY,
    Index,
    Record,
    log_path,
    name_of,
    object_path,
    split,
    trailer_of,
)
from peercached.cold.lease import Lease
from peercached.cold.manifests import Manifests
from peercached.cold.requests import Requests, StoreError
from peercached.cold.sealing import Sealing
from peercached.cold.sweeper import Sweeper
from peercached.cold.voids import Voids

ID = bytes(range(16))
PAGE = 1024
DAY_MS = 86_400_000
LEASE_S = seconds(1.0)


def digest(number: int) -> bytes:
    return number.to_bytes(16, "big")


def payload(number: int) -> bytes:
    return bytes([number]) * PAGE


class Node:
    """A process that uses the store, without pools."""

    def __init__(self, folder: Path, size_max: int = 1 << 30, age_d: int = 30) -> None:
        self.folder = folder
        self.requests = Requests(f"file://{folder}", 100_000)
        self.places: dict[bytes, tuple[bytes, bytes, bytes, int, int, bytes]] = {}
        self.generation = 0
        engine = cast(Any, self)
        self.voids = Voids(engine, self.requests, cast(Any, self), any_marker())
        self.known = Manifests(engine, self.requests, self.voids)
        self.compaction = Compaction(self.requests, self.voids, self.known, 0.0)
        self.lease = Lease(self.requests, f"node {id(self)}", LEASE_S)
        self.sweeper = Sweeper(
            self.requests,
            self.voids,
            self.known,
            self.compaction,
            self.lease,
            LEASE_S,
            size_max,
            age_d * 86400,
        )

    # --- the data plane

    def vouch_until(self, until_s: float) -> None: ...
    def learn(self, epochs: Iterable[tuple[bytes, int]]) -> None: ...
    def raise_generation(self, generation: int) -> None:
        self.generation = generation

    def drop_stored(self, digests: bytes) -> None:
        for at in range(0, len(digests), 16):
            self.places.pop(digests[at : at + 16], None)

    def drop_stored_below(self, namespace_id: bytes, epoch: int, generation: int) -> None:
        self._keep(lambda of: of[2] != namespace_id or of[3:5] >= (epoch, generation))

    def drop_objects(self, names: bytes) -> None:
        gone = {names[at : at + 16] for at in range(0, len(names), 16)}
        self._keep(lambda of: of[0] not in gone)

    def _keep(self, is_kept: Any) -> None:
        self.places = {one: of for one, of in self.places.items() if is_kept(of)}

    def add_object(self, *of: Any) -> bool:
        *where, entries = of
        for entry in split(entries):
            self.places[entry[:16]] = (*where, entry)
        return True

    def stored_in(self, name: bytes, digests: bytes) -> bytes:
        found = (self.places.get(digests[at : at + 16]) for at in range(0, len(digests), 16))
        return b"".join(of[-1] for of in found if of is not None and of[0] == name)

    def stored_objects(self) -> list[tuple[bytes, int]]:
        live: dict[bytes, int] = {}
        for name, *_, entry in self.places.values():
            live[name] = live.get(name, 0) + ENTRY.unpack(entry)[3]
        return list(live.items())

    # --- what it does

    async def write(self, *numbers: int, born: int = 0, age_d: float = 0.0) -> Path:
        """Puts an object of these pages, as the writer does."""
        places = enumerate(numbers)
        entries = b"".join(ENTRY.pack(digest(n), 0, at * PAGE, PAGE) for at, n in places)
        index = Index(ID, 0, len(numbers) * PAGE, entries, born)
        packed = index.pack()
        path = object_path(ID, 0, name_of(packed))
        payloads = b"".join(map(payload, numbers))
        await self.requests.put(path, payloads + packed + trailer_of(packed))
        made_ms = int(time.time() * 1000 - age_d * DAY_MS)
        await self.requests.put(log_path(manifests.FOLDER, made_ms, name_of(packed)), packed)
        return self.folder / path

    async def remove(self, *numbers: int) -> None:
        await self.voids.put(Record(ID, 0, b"".join(map(digest, numbers))))

    async def pages(self) -> set[int]:
        """The pages that a reader finds now. Checks their bytes."""
        await self.voids.fresh()
        await self.known.read(is_complete=True)
        found = set()
        for one, (_, home, namespace_id, epoch, _, entry) in list(self.places.items()):
            number = int.from_bytes(one, "big")
            _, _, offset, length = ENTRY.unpack(entry)
            path = object_path(namespace_id, epoch, home)
            try:
                got = await self.requests.get_range(path, offset, offset + length)
            except StoreError as error:
                assert error.kind == "missing"
                continue
            assert bytes(got) == payload(number)
            found.add(number)
        return found

    async def take_lease(self) -> None:
        while not await self.lease.look():  # noqa: ASYNC110
            await asyncio.sleep(0.05)

    async def sweep(self) -> None:
        """Until it has the lease, and a round more."""
        await self.take_lease()
        await self.voids.fresh()
        await self.known.read(is_complete=True)
        self.sweeper._records_at = self.sweeper._leftovers_at = float("-inf")
        self.sweeper._compacted_at.clear()
        await self.sweeper.run()
        assert not self.sweeper.problem

    def count(self, folder: str) -> int:
        files = (path for path in (self.folder / folder).rglob("*") if path.is_file())
        return sum(not path.name.startswith("store-") for path in files)


async def test_object_may_be_forgotten_during_a_listing_and_a_compaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sweeper deletes objects while the node lists the manifests."""
    node = Node(tmp_path)
    await node.write(1, 2)
    await node.write(3)
    assert await node.pages() == {1, 2, 3}
    for request in ("names", "get"):
        usual = getattr(node.requests, request)

        async def swept_meanwhile(*of: Any, usual: Any = usual, **how: Any) -> Any:
            answer = await usual(*of, **how)
            is_of_objects = of[0].startswith(manifests.FOLDER)
            for name in list(node.known.objects)[:1] if is_of_objects else ():
                await node.requests.delete(node.known.objects[name].path)
                node.known.forget([name])
                node.known.forget([name])
            return answer

        with monkeypatch.context() as patch:
            patch.setattr(node.requests, request, swept_meanwhile)
            if request == "names":
                await node.known.read(is_complete=True)
            else:
                await node.take_lease()
                await node.compaction.run(ID, node.sweeper._go_on)
    assert not node.known.objects and not node.places and not node.known.bytes


async def test_one_of_two_sweeps_and_the_other_one_when_it_is_silent(tmp_path: Path) -> None:
    first, second = Node(tmp_path), Node(tmp_path)
    await first.take_lease()
    for _ in range(int(2 * LEASE_S / 0.05)):
        assert await first.lease.look() and not await second.lease.look()
        await asyncio.sleep(0.05)
    assert second.lease.holder == first.lease.holder != ""
    while not await second.lease.look():  # the first one is frozen
        assert not first.lease.is_held or not second.lease.is_held
        await asyncio.sleep(0.05)
    assert not first.lease.is_held and not await first.lease.look()
    assert first.lease.holder == second.lease.holder
    assert len(list((tmp_path / "sweeper").iterdir())) == 1


async def test_old_objects_leftovers_and_what_is_too_much_are_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = Node(tmp_path, size_max=5 * PAGE, age_d=30)
    await node.write(1, age_d=31)
    await node.write(2, 3, age_d=3)
    await node.write(4, 5, age_d=2)
    await node.write(6, 7, age_d=1)
    fresh, old = (tmp_path / object_path(ID, 0, name_of(name)) for name in (b"new", b"old"))
    foreign = tmp_path / "pages" / "README"
    (await node.write(8)).unlink()  # its manifest is left
    for path in (fresh, old, foreign):
        path.write_bytes(b"no manifest")
    day_ago_s = time.time() - sweeper.LEFTOVER_AGE_S - 60
    for path in (old, foreign):
        os.utime(path, (day_ago_s, day_ago_s))
    await node.sweep()
    assert await node.pages() == await Node(tmp_path).pages() == {4, 5, 6, 7}
    assert node.known.bytes == 4 * PAGE
    assert node.sweeper.deleted_objects == 3 and node.sweeper.deleted_bytes == 3 * PAGE
    assert fresh.exists() and foreign.exists() and not old.exists()
    assert node.count("manifests") == 2 and node.count("pages") == 4


async def test_compaction_keeps_live_pages_and_ends_the_records(tmp_path: Path) -> None:
    node, reader, late = Node(tmp_path), Node(tmp_path), Node(tmp_path)
    intact = await node.write(*range(10), age_d=5)
    half = await node.write(*range(10, 20), age_d=4)
    await node.write(*range(20, 30))
    assert await reader.pages() == set(range(30))
    await reader.remove(*range(14, 30))
    live = set(range(14))
    assert await reader.pages() == live
    for _ in range(2):  # the second one deletes what the first one has replaced
        await node.sweep()
        assert await reader.pages() == await Node(tmp_path).pages() == live
    assert node.compaction.kept_objects == node.compaction.rewritten_objects == 1
    assert intact.exists() and not half.exists() and node.count("pages") == 2
    assert node.count("manifests") == 2 and node.known.bytes == 14 * PAGE
    ages_d = sorted(
        round(time.time() * 1000 - one.made_ms) // DAY_MS for one in node.known.objects.values()
    )
    assert ages_d == [4, 5], "the copies are as old as their pages"
    # Of the records only the floor is left.
    assert node.count("voids") == 1 and node.voids.removed_pages == 0
    # A page that was set before the removal stays void, though no record has it any more.
    await late.write(20, born=0)
    # Set anew, it is found.
    await reader.write(21, born=reader.generation)
    assert await Node(tmp_path).pages() == await reader.pages() == live | {21}
    await node.sweep()
    assert node.count("manifests") == 3 and await reader.pages() == live | {21}


async def test_removals_during_two_compactions_at_once_hold(tmp_path: Path) -> None:
    """Both also lose objects to the bucket's lifecycle rules meanwhile."""
    nodes = [Node(tmp_path), Node(tmp_path)]
    remover, reader = Node(tmp_path), Node(tmp_path)
    for begin in range(0, 100, 5):
        await remover.write(*range(begin, begin + 5))
    await remover.remove(*range(0, 20))
    gone = set(range(20))
    is_over = False
    rounds = 0

    async def remove() -> None:
        for number in range(20, 100, 10):
            await remover.remove(number, number + 1)
            gone.update((number, number + 1))
            if number == 60:  # the lifecycle rules
                for folder in ("pages", "manifests"):
                    files = [path for path in (tmp_path / folder).rglob("*") if path.is_file()]
                    files[len(files) // 2].unlink()

    async def compact(node: Node) -> None:
        while not is_over:
            await node.known.read_new()
            await node.compaction.run(ID, lambda: asyncio.sleep(0))
            await node.sweeper._delete_objects(node.sweeper._void_objects())
            await node.sweeper._tend_records()

    async def held(node: Node) -> None:
        async def always() -> bool:
            return True

        node.lease.look = always
        await compact(node)

    async def read() -> None:
        nonlocal rounds
        while not is_over:
            before = set(gone)
            assert not await reader.pages() & before
            rounds += 1

    tasks = [asyncio.ensure_future(work) for work in (held(nodes[0]), held(nodes[1]), read())]
    await remove()
    is_over = True
    await asyncio.gather(*tasks)
    assert rounds > 3 and sum(node.compaction.compactions for node in nodes) > 3
    left = await Node(tmp_path).pages()
    assert left and not left & gone


async def test_many_small_records_become_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeper, "MERGE_MIN", 4)
    node, reader = Node(tmp_path), Node(tmp_path)
    await asyncio.gather(*(Node(tmp_path).remove(number) for number in range(5)))
    await node.write(*range(6))
    monkeypatch.setattr(sweeper, "DEAD_SHARE", 1.0)
    await node.sweep()
    assert node.count("voids") == 2 and await reader.pages() == {5}
    # All alike: the one that they become is not among those that are deleted.
    node, reader = Node(tmp_path / "alike"), Node(tmp_path / "alike")
    await node.write(1, 2)
    record, now_ms = Record(ID, 0, digest(1)).pack(), int(time.time() * 1000)
    for number in range(4):
        path = log_path("voids", now_ms - number, name_of(record))
        await node.requests.put(path, record)
    await node.sweep()
    assert node.count("voids") == 1 and await reader.pages() == {2}


async def test_objects_of_another_key_are_forgotten_when_they_have_gone(tmp_path: Path) -> None:
    node = Node(tmp_path, size_max=8 * PAGE)
    await node.write(1, 2)
    index = Index(ID, 0, 100 * PAGE, ENTRY.pack(digest(3), 0, 0, PAGE))
    name, packed = index.sealed(Sealing(b"k" * 32))
    path = log_path(manifests.FOLDER, 1, name)
    await node.requests.put(path, packed)
    await node.sweep()
    assert await node.pages() == {1, 2}, "the sweeper makes no room for others"
    assert (node.known.other_keys, node.known.bytes) == (1, 102 * PAGE)
    (tmp_path / path).unlink()
    await node.known.read(is_complete=True)
    assert (node.known.other_keys, node.known.bytes) == (0, 2 * PAGE)
