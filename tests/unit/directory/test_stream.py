"""Record streams: one holder, one owner, and a wire that loses, duplicates and reorders
messages."""

from __future__ import annotations

import random
from typing import Any

import pytest
from harness.fake_engine import FakeNative, digest_of
from harness.record_stream import HOLDER_AT_OWNER, Pair, pages

from peercached.directory import stream as stream_module
from peercached.directory.layout import ROW_BYTES, digests_of, holders_of, pack_mapping
from peercached.directory.messages import Kind


def test_a_ticket_is_done_when_the_owner_has_applied_its_records(pair: Pair) -> None:
    assert pair.set(digest_of("a"), ticket=7)
    pair.send()
    assert pair.done == []
    pair.deliver()
    assert pair.at_owner == pair.in_pool
    pair.acknowledge()
    assert pair.done == [7]


def test_offers_that_wait_together_travel_in_one_batch(pair: Pair) -> None:
    for ticket, digest in enumerate(pages(50), start=1):
        pair.set(digest, ticket)
    pair.send()
    assert len(pair.to_owner) == 1
    pair.deliver()
    pair.acknowledge()
    assert pair.done == list(range(1, 51))


def test_empty_offer_completes_after_records_in_flight(pair: Pair) -> None:
    pair.set(digest_of("a"))
    pair.send()
    assert pair.stream.offer(b"", 7)
    pair.settle()
    assert pair.done == [7]


def test_a_batch_that_comes_twice_changes_nothing(pair: Pair) -> None:
    pair.set(digest_of("a"), ticket=1)
    pair.send()
    pair.to_owner.append(pair.to_owner[0])
    pair.deliver()
    assert [(ack.sequence, ack.gap) for ack in pair.to_holder] == [
        (pair.to_holder[0].sequence, False)
    ] * 2
    pair.acknowledge()
    assert pair.done == [1]
    assert not pair.stream.broken


def test_batches_of_an_earlier_connection_are_ignored(pair: Pair) -> None:
    pair.set(digest_of("a"))
    pair.send()
    old = list(pair.to_owner)
    pair.reconnect()
    pair.settle()
    pair.evict(digest_of("a"))
    pair.settle()
    for batch in old:
        assert pair.side.batch(HOLDER_AT_OWNER, batch) is None
    assert pair.at_owner == set()


def test_an_overdue_acknowledgement_breaks_the_stream(pair: Pair) -> None:
    pair.set(digest_of("a"))
    pair.send()
    pair.stream.check(pair.now + stream_module.ACK_TIMEOUT_S)
    assert not pair.stream.broken
    pair.stream.check(pair.now + stream_module.ACK_TIMEOUT_S + 0.1)
    assert "acknowledgement" in pair.stream.broken


def test_in_flight_records_are_sent_first_after_reconnect(pair: Pair) -> None:
    pair.set(digest_of("a"), ticket=1)
    pair.send()
    assert pair.reconnect() == [1]
    pair.send()
    assert [batch.kind for batch in pair.to_owner] == [Kind.HELLO, Kind.ROWS]


def test_window_bounds_the_batches_in_flight(pair: Pair, monkeypatch: Any) -> None:
    monkeypatch.setattr(stream_module, "BATCH_BYTES_MAX", ROW_BYTES)
    for digest in pages(3 * stream_module.WINDOW_BATCHES):
        pair.set(digest)
    pair.send()
    assert len(pair.to_owner) == stream_module.WINDOW_BATCHES
    pair.settle()
    assert pair.at_owner == pair.in_pool


def test_the_window_bounds_the_bytes_under_way(pair: Pair, monkeypatch: Any) -> None:
    monkeypatch.setattr(stream_module, "BATCH_BYTES_MAX", ROW_BYTES)
    monkeypatch.setattr(stream_module, "WINDOW_BYTES", 5 * ROW_BYTES)
    for digest in pages(20):
        pair.set(digest)
    pair.send()
    assert sum(len(batch.payload) for batch in pair.to_owner) == 5 * ROW_BYTES
    pair.settle()
    assert pair.at_owner == pair.in_pool


def test_offers_that_travel_together_are_no_larger_than_a_batch(
    pair: Pair, monkeypatch: Any
) -> None:
    monkeypatch.setattr(stream_module, "BATCH_BYTES_MAX", 4 * ROW_BYTES)
    for digest in pages(10):
        pair.set(digest)
    pair.send()
    assert [len(batch.payload) // ROW_BYTES for batch in pair.to_owner] == [4, 4, 2]


def test_queue_for_the_next_connection_is_bounded(pair: Pair, monkeypatch: Any) -> None:
    """Batches in flight return to the queue, in addition to those already waiting."""
    monkeypatch.setattr(stream_module, "BATCH_BYTES_MAX", ROW_BYTES)
    monkeypatch.setattr(stream_module, "QUEUE_BYTES_MAX", 10 * ROW_BYTES)
    for number, digest in enumerate(pages(16), start=1):
        assert pair.set(digest, number)
        if number == 8:
            pair.send()
    assert sorted(pair.stream.disconnect()) == list(range(1, 17)), "those who wait are told"
    assert pair.stream.overflows == 1
    assert pair.stream.status()["queued_bytes"] == 0
    pair.reconnect()
    pair.settle()
    assert pair.at_owner == pair.in_pool
    assert pair.stream.in_sync


def test_a_holder_outside_the_view_is_refused(pair: Pair) -> None:
    pair.side.set_view(2, [])
    pair.set(digest_of("a"))
    pair.send()
    with pytest.raises(LookupError, match="not in view 2"):
        pair.deliver()


def test_malformed_batches_are_refused_with_the_value(pair: Pair) -> None:
    pair.set(digest_of("a"))
    pair.send()
    pair.to_owner[0].payload = b"x" * 47
    with pytest.raises(ValueError, match="47 bytes is not a multiple of 48"):
        pair.deliver()


@pytest.mark.parametrize(("kind", "size"), [("fingerprint", 16), ("summary", 4096)])
def test_questions_of_another_length_are_refused_with_theirs(
    pair: Pair, kind: str, size: int
) -> None:
    pair.holder.set_page(digest_of("lost"))
    pair.stream.resync()
    pair.scan()
    pair.send()
    while pair.to_owner[0].kind is not Kind[kind.upper()]:
        pair.deliver()
        pair.acknowledge()
        pair.send()
    pair.to_owner[0].payload = b"x" * 17
    with pytest.raises(ValueError, match=f"a {kind} of 17 bytes, not {size}"):
        pair.deliver()


@pytest.mark.parametrize("seed", range(100))
def test_any_fate_of_messages_ends_with_equal_records(seed: int) -> None:
    """Loss, duplicates, reordering, restarts of both sides and lost events, in any order."""
    rng = random.Random(seed)
    pair = Pair()
    pair.connect()
    universe = pages(60)
    for _ in range(400):
        fate = rng.random()
        if fate < 0.45:
            digest = rng.choice(universe)
            if digest in pair.holder.pool:
                pair.evict(digest)
            else:
                pair.set(digest)
        elif fate < 0.50:
            digest = rng.choice(universe)  # the event is lost, and the engine reports that
            if digest in pair.holder.pool:
                pair.holder.drop_page(digest)
                pair.stream.resync()
        elif fate < 0.70:
            pair.send()
        elif fate < 0.80:
            pair.scan()
        elif fate < 0.88:
            pair.deliver()
        elif fate < 0.93:
            pair.acknowledge()
        elif fate < 0.95 and pair.to_owner:
            del pair.to_owner[rng.randrange(len(pair.to_owner))]
        elif fate < 0.97 and pair.to_owner:
            pair.to_owner.insert(0, rng.choice(list(pair.to_owner)))
        elif fate < 0.98:
            messages = list(pair.to_owner)
            rng.shuffle(messages)
            pair.to_owner.clear()
            pair.to_owner.extend(messages)
        elif fate < 0.99:
            pair.reconnect()
        else:
            pair.new_owner()
        if pair.stream.broken:
            pair.reconnect()
    pair.settle()
    pair.now += 60.0
    pair.stream.check(pair.now)  # only the timeout reveals that the last message was lost
    if pair.stream.broken or not pair.stream.in_sync:
        pair.reconnect()
        pair.settle()
    assert pair.at_owner == pair.in_pool
    assert pair.stream.in_sync
    assert pair.side.final(pair.view)


def test_packed_columns_are_read_as_native_code_writes_them() -> None:
    pair = Pair()
    rows = b"".join(pair.holder.set_page(digest) for digest in pages(5))
    assert digests_of(rows) == b"".join(pages(5))
    assert holders_of(rows) == {0}
    mapped = FakeNative.map_rows(rows, pack_mapping({0: 3}))
    assert holders_of(mapped) == {3}
    assert FakeNative.map_rows(mapped, pack_mapping({0: 1, 3: 0xFFFF})) == b""
    assert holders_of(b"") == set()
    assert digests_of(b"") == b""
