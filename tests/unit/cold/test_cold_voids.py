"""How long a listing of the store's log of removals counts. The store is a folder."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

import pytest
from harness.cold import any_marker

from peercached.cold import voids as rules
from peercached.cold.format import Record, log_path, name_of
from peercached.cold.requests import Requests, StoreError
from peercached.cold.voids import FOLDER, SLACK_MS, VALID_S, Voids

ID = bytes(range(16))


def digest(number: int) -> bytes:
    return bytes([number]) * 16


class Node:
    """A node's view of the log, with what its data plane is told."""

    def __init__(self, folder: Path) -> None:
        self.requests = Requests(f"file://{folder}", 1000)
        self.vouched_until = 0.0
        self.dropped: set[bytes] = set()
        self.below: dict[bytes, tuple[int, int]] = {}
        self.generation = 0
        self.learnt: dict[bytes, int] = {}
        self.voids = Voids(cast(Any, self), self.requests, self, any_marker())

    def vouch_until(self, until_s: float) -> None:
        self.vouched_until = until_s

    def drop_stored(self, digests: bytes) -> None:
        assert self.vouched_until < time.monotonic() + VALID_S, "drop first, then vouch"
        self.dropped |= {digests[at : at + 16] for at in range(0, len(digests), 16)}

    def drop_stored_below(self, namespace_id: bytes, epoch: int, generation: int) -> None:
        self.below[namespace_id] = epoch, generation

    def raise_generation(self, generation: int) -> None:
        self.generation = generation

    def learn(self, epochs: Iterable[tuple[bytes, int]], asked: bool = False, by: str = "") -> None:
        self.learnt |= dict(epochs)


def records_in(folder: Path) -> list[Path]:
    return list((folder / FOLDER).glob("[0-9]*"))


async def test_removal_is_over_only_when_no_earlier_listing_counts(tmp_path: Path) -> None:
    writer, reader = Node(tmp_path), Node(tmp_path)
    await reader.voids.look()
    valid_until = reader.voids.valid_until
    await writer.voids.put(Record(ID, 0, digest(1)))
    assert time.monotonic() >= valid_until, "the reader may still have used its old listing"
    assert not reader.voids.is_void(digest(1), ID, 0, 0), "it has not looked since"
    assert await reader.voids.fresh() >= time.monotonic()
    assert reader.voids.is_void(digest(1), ID, 0, 0) and reader.dropped == {digest(1)}
    assert not reader.voids.is_void(digest(2), ID, 0, 0)
    assert reader.vouched_until == reader.voids.valid_until
    owing = Node(tmp_path)
    owing.voids.why_not = lambda: "it may have missed removals"
    await owing.voids.fresh()
    assert owing.voids.is_void(digest(1), ID, 0, 0) and not owing.vouched_until


async def test_removal_that_is_tried_again_makes_no_other_record_in_a_generation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, other = Node(tmp_path), Node(tmp_path)

    def count() -> int:
        return len(records_in(tmp_path))

    gone = Record(ID, 0, digest(1) + digest(2))
    await first.voids.put(gone)
    await other.voids.look()
    with monkeypatch.context() as patch:
        patch.setattr(other.voids, "_list_from", fails)
        for _ in range(3):
            with pytest.raises(StoreError):
                await other.voids.put(Record(ID, 0, digest(3)))
    await Node(tmp_path).voids.put(gone)  # of a node that has just started
    assert count() == 2
    began = time.monotonic()
    for record in (gone, Record(ID, 0, digest(3))):
        await other.voids.look()
        await other.voids.put(record)
    assert count() == 2 and time.monotonic() - began >= 2 * VALID_S
    await other.voids.put(gone, anew=True)
    assert count() == 3
    # A page may have been set and written since, in a later generation.
    await first.voids.put(Record(rules.ANY_NAMESPACE, 0, generation=5))
    await other.voids.put(gone)
    assert count() == 5 and other.voids.is_void(digest(1), ID, 0, 6)
    # Others may not list the one that is there any more.
    later = Record(rules.ANY_NAMESPACE, 0, generation=5).pack()
    newest = max(int(path.name[:13]) for path in records_in(tmp_path))
    path = log_path(FOLDER, newest + SLACK_MS, name_of(later))
    await first.requests.put(path, later)
    await other.voids.look()
    await other.voids.put(gone)
    assert count() == 7


@pytest.mark.parametrize("looks_meanwhile", [True, False])
async def test_store_that_comes_back_gets_the_counter_of_those_who_know(
    tmp_path: Path, looks_meanwhile: bool
) -> None:
    """It may be emptied, or an older copy. Pages were born in the counter that it had."""
    node = Node(tmp_path)
    await node.voids.put(Record(rules.ANY_NAMESPACE, 0, generation=7))
    [marker] = (tmp_path / FOLDER).glob("store-*")
    shutil.rmtree(tmp_path / FOLDER)
    (tmp_path / FOLDER).mkdir()
    if looks_meanwhile:
        with pytest.raises(StoreError, match="does not have the marker"):
            await node.voids.put(Record(ID, 0, digest(2)))
        assert not list((tmp_path / FOLDER).glob("store-*"))
    marker.touch()
    await node.voids.look()
    other = Node(tmp_path)
    await other.voids.put(Record(ID, 0, digest(1)))
    assert other.voids.generation == 7 and other.voids.is_void(digest(1), ID, 0, 7)


async def fails(at: float) -> None:
    raise StoreError("throttled", "503")


async def test_clear_voids_all_lower_epochs_and_is_learnt(tmp_path: Path) -> None:
    writer, reader = Node(tmp_path), Node(tmp_path)
    await writer.voids.put(Record(ID, 9))
    await reader.voids.fresh()
    assert reader.voids.is_below(ID, 8, 5) and not reader.voids.is_below(ID, 9, 0)
    assert reader.below == {ID: (9, 0)} and reader.learnt == {ID: 9}


async def test_removal_voids_one_generation_more_and_a_floor_ends_it(tmp_path: Path) -> None:
    """A remover that knows no generation finds it in its listing, and puts its record again."""
    other, writer, reader = Node(tmp_path), Node(tmp_path), Node(tmp_path)
    await writer.voids.look()
    await other.voids.put(Record(rules.ANY_NAMESPACE, 0, generation=3))
    await writer.voids.put(Record(ID, 0, digest(1)))
    assert len(records_in(tmp_path)) == 3 and writer.generation == 3
    await reader.voids.look()
    assert [reader.voids.is_void(digest(1), ID, 0, g) for g in (0, 4, 5)] == [True, True, False]
    assert not reader.voids.is_void(digest(2), ID, 0, 0)
    for generation, is_kept in ((4, True), (5, False)):
        await other.voids.put(Record(ID, 0, generation=generation))
        await reader.voids.look()
        assert reader.voids.is_below(ID, 0, generation - 1) and reader.below[ID] == (0, generation)
        assert reader.voids.is_removed(digest(1), ID, 0) == is_kept
    assert not reader.learnt, "it is no clear"


async def test_record_that_vanishes_while_it_is_read_means_another_listing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A floor made it useless, and came too late for the listing."""
    other, reader = Node(tmp_path), Node(tmp_path)
    await other.voids.put(Record(ID, 0, digest(1)))
    (record,) = records_in(tmp_path)
    get = reader.requests.get
    floor = Record(ID, 0, generation=2).pack()

    async def vanishes(path: str, bytes_max: int, **how: bool) -> bytes:
        if path.endswith(record.name):
            later = log_path(FOLDER, int(record.name[:13]) + 1, name_of(floor))
            await other.requests.put(later, floor)
            record.unlink()
        return await get(path, bytes_max, **how)

    monkeypatch.setattr(reader.requests, "get", vanishes)
    await reader.voids.look()
    assert reader.voids.is_void(digest(1), ID, 0, 1) and reader.requests.requests["list"] == 2


async def test_fresh_looks_only_when_the_last_look_is_too_old(tmp_path: Path) -> None:
    node = Node(tmp_path)
    await node.voids.fresh()
    listings = node.requests.requests["list"]
    await node.voids.fresh()
    assert node.requests.requests["list"] == listings
    left_s = node.voids.valid_until - time.monotonic() - rules.MARGIN_S
    await asyncio.sleep(max(left_s, 0) + 0.01)
    await asyncio.gather(*(node.voids.fresh() for _ in range(5)))
    assert node.requests.requests["list"] == listings + 1, "those that want it join"


@pytest.mark.parametrize("hours", [-2, 2])
async def test_record_of_a_writer_with_a_wrong_clock_is_seen(
    tmp_path: Path, hours: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reader's listing does not begin at the first name any more."""
    right, wrong, reader = Node(tmp_path), Node(tmp_path), Node(tmp_path)
    await right.voids.put(Record(ID, 0, digest(1)))
    for _ in range(3):
        await reader.voids.look()
    now_ns = time.time_ns
    with monkeypatch.context() as patch:
        patch.setattr(time, "time_ns", lambda: now_ns() + hours * 3600 * 10**9)
        await wrong.voids.put(Record(ID, 0, digest(2)))
    await reader.voids.look()
    await right.voids.put(Record(ID, 0, digest(3)))
    await reader.voids.look()
    assert reader.dropped == {digest(1), digest(2), digest(3)}


async def test_writer_that_overlooked_a_newer_record_gives_its_own_a_later_name(
    tmp_path: Path,
) -> None:
    """Another writer put its record between our look and our put. Its clock is ahead."""
    writer = Node(tmp_path)
    await writer.voids.look()
    ahead = Record(ID, 0, digest(8)).pack()
    ahead_ms = time.time_ns() // 1_000_000 + 6 * SLACK_MS
    await writer.requests.put(log_path(FOLDER, ahead_ms, name_of(ahead)), ahead)
    await writer.voids.put(Record(ID, 0, digest(1)))
    times = sorted(int(path.name[:13]) for path in records_in(tmp_path))
    assert times[-1] - times[-2] < SLACK_MS


async def test_listing_begins_late_but_not_after_what_the_one_before_could_not_see(
    tmp_path: Path,
) -> None:
    """A record came with a low name while a listing was on its way past it."""
    reader = Node(tmp_path)
    now_ms = time.time_ns() // 1_000_000

    async def put(time_ms: int, number: int) -> None:
        packed = Record(ID, 0, digest(number)).pack()
        await reader.requests.put(log_path(FOLDER, time_ms, name_of(packed)), packed)

    await put(now_ms, 1)
    await reader.voids.look()
    await put(now_ms + 3 * SLACK_MS, 2)  # seen by this listing; the next one it has overlooked
    await reader.voids.look()
    await put(now_ms + 1, 3)
    await reader.voids.look()
    assert digest(3) in reader.dropped


@pytest.mark.parametrize("content", [b"", b"foreign", Record(ID, 0, digest(9)).pack() + b"x"])
async def test_record_that_cannot_be_read_makes_the_store_unusable(
    tmp_path: Path, content: bytes
) -> None:
    node = Node(tmp_path)
    path = log_path(FOLDER, 5, name_of(Record(ID, 0, digest(9)).pack()))
    await node.requests.put(path, content)
    with pytest.raises(StoreError, match=path):
        await node.voids.fresh()
    assert node.vouched_until == 0.0 and path in node.voids.problem
    (tmp_path / path).unlink()
    await node.voids.fresh()
    assert node.voids.problem == ""


async def test_new_node_reads_each_record_once_although_some_reads_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, reader = Node(tmp_path), Node(tmp_path)
    for number in range(150):
        record = Record(ID, 0, digest(number)).pack()
        await other.requests.put(log_path(FOLDER, 1000 + number, name_of(record)), record)
    get = reader.requests.get
    reads: list[str] = []

    async def fails_now_and_then(path: str, bytes_max: int, **how: bool) -> bytes:
        reads.append(path)
        if len(reads) % 10 == 0:
            raise StoreError("throttled", "503 SlowDown")
        return await get(path, bytes_max, **how)

    monkeypatch.setattr(reader.requests, "get", fails_now_and_then)
    failed = 0
    while not reader.voids.has_looked:
        try:
            await reader.voids.look()
        except StoreError:
            failed += 1
    assert reader.voids.removed_pages == 150 and failed > 1
    assert len(reads) == 150 + len(reads) // 10


async def test_foreign_names_do_not_count(tmp_path: Path) -> None:
    node = Node(tmp_path)
    await node.requests.put(f"{FOLDER}/.keep", b"foreign")
    await node.voids.fresh()
    assert not node.voids.removed_pages


async def test_too_many_removed_pages_of_a_namespace_void_its_objects_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rules, "NAMESPACE_DIGESTS_MAX", 2)
    node, other_id = Node(tmp_path), bytes(reversed(ID))
    digests = digest(1) + digest(2) + digest(3)
    await node.voids.put(Record(other_id, 0, digest(1)))
    await node.voids.put(Record(ID, 0, digests))
    assert node.voids.is_below(ID, 0, 1) and not node.voids.is_below(ID, 0, 2)
    assert node.voids.is_void(digest(3), ID, 0, 1) and node.below == {ID: (0, 2)}
    assert node.voids.is_void(digest(1), other_id, 0, 0)
    assert not node.voids.is_below(other_id, 0, 0) and node.voids.removed_pages == 1


async def test_record_that_the_store_damages_is_put_once_more(tmp_path: Path) -> None:
    """Or nobody could use the store any more."""
    writer, reader = Node(tmp_path), Node(tmp_path)
    put = writer.requests.put

    async def damaging(path: str, packed: bytes, **how: Any) -> bool:
        return await put(path, packed[:-1] + b"?", **how)

    writer.requests.put = damaging  # type: ignore[assignment]
    with pytest.raises(StoreError, match="cannot be read as a record"):
        await writer.voids.put(Record(ID, 0, digest(1)))
    with pytest.raises(StoreError):
        await reader.voids.look()
    writer.requests.put = put
    await writer.voids.put(Record(ID, 0, digest(1)))
    await reader.voids.fresh()
    assert reader.voids.is_void(digest(1), ID, 0, 0)
