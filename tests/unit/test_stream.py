"""Record streams: one holder, one owner, and a wire that loses, doubles and reorders."""

from __future__ import annotations

import random
from collections import deque
from typing import Any

import pytest
from sim.fake_engine import FakeNative, build_ring, digest_of
from sim.wire import HOLDER_AT_OWNER, Pair

from peercached.directory import stream as stream_module
from peercached.directory.layout import ROW_BYTES, digests_of, holders_of, pack_mapping
from peercached.directory.messages import Kind
from peercached.directory.stream import Want


def pages(count: int, prefix: str = "p") -> list[bytes]:
    return [digest_of(f"{prefix}{i}") for i in range(count)]


@pytest.fixture
def pair() -> Pair:
    pair = Pair()
    pair.connect()
    pair.settle()
    return pair


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


def test_an_offer_of_nothing_is_done_behind_what_is_on_its_way(pair: Pair) -> None:
    pair.set(digest_of("a"))
    pair.send()
    assert pair.stream.offer(b"", 7)
    pair.settle()
    assert pair.done == [7]


def test_an_empty_pool_is_in_sync_without_any_bucket(pair: Pair) -> None:
    assert pair.stream.in_sync
    assert pair.side.final(pair.view)


def kinds_sent(pair: Pair) -> list[Kind]:
    """Until it has come to rest."""
    sent: list[Kind] = []
    for _ in range(20):
        pair.scan()
        pair.send()
        sent += [batch.kind for batch in pair.to_owner]
        pair.deliver()
        pair.acknowledge()
    return sent


def wanted_by_resync(pair: Pair) -> Want:
    """What it wants of the pool once the owner has told what differs."""
    pair.stream.resync()
    pair.scan()
    for _ in range(2):
        pair.send()
        pair.deliver()
        pair.acknowledge()
    want = pair.stream.wanted()
    assert want is not None and want.mask
    return want


def test_an_owner_that_has_it_all_is_sent_a_fingerprint_and_nothing_more(pair: Pair) -> None:
    for digest in pages(100):
        pair.set(digest)
    pair.settle()
    pair.side.set_view(2, [HOLDER_AT_OWNER])
    pair.side.own_records_in_sync(2)
    assert not pair.side.final(2)
    pair.stream.set_view(2)
    assert kinds_sent(pair) == [Kind.FINGERPRINT]
    assert pair.stream.in_sync
    assert pair.side.final(2)


def test_an_owner_that_has_compared_by_a_view_has_it(pair: Pair) -> None:
    pair.set(digest_of("a"))
    pair.settle()
    assert pair.stream.has_view
    pair.stream.set_view(2)
    assert kinds_sent(pair) == [Kind.FINGERPRINT]
    assert not pair.stream.has_view, "the owner waits for it"
    for _, _, answer in pair.side.set_view(2, [HOLDER_AT_OWNER]):
        pair.stream.ack(answer)
    assert pair.stream.has_view
    pair.reconnect()
    assert pair.stream.has_view


def test_a_record_that_the_owner_lost_shows_in_the_fingerprint(pair: Pair) -> None:
    kept, lost = pages(2)
    pair.set(kept)
    pair.holder.set_page(lost)
    pair.stream.resync()
    resync = [Kind.FINGERPRINT, Kind.SUMMARY, Kind.BUCKET, Kind.SYNC_DONE]
    assert kinds_sent(pair) == [Kind.ROWS, *resync]
    assert pair.at_owner == pair.in_pool


def test_a_reconnect_sends_only_the_buckets_that_differ(pair: Pair) -> None:
    for digest in pages(100):
        pair.set(digest)
    pair.settle()
    pair.stream.disconnect()
    missed = digest_of("missed")
    pair.holder.set_page(missed)  # its record never reached the stream
    pair.connect()
    assert kinds_sent(pair).count(Kind.BUCKET) == 1
    assert pair.at_owner == pair.in_pool


def test_an_owner_that_restarted_gets_everything_again(pair: Pair) -> None:
    for digest in pages(300):
        pair.set(digest)
    pair.settle()
    pair.new_owner()
    assert not pair.side.final(pair.view)
    pair.reconnect()
    pair.settle()
    assert pair.at_owner == pair.in_pool
    assert pair.side.final(pair.view)


def test_withdrawals_missed_while_disconnected_are_found_by_the_resync(pair: Pair) -> None:
    for digest in pages(40):
        pair.set(digest)
    pair.settle()
    pair.stream.disconnect()
    for digest in pages(20):
        pair.holder.drop_page(digest)  # the event was lost, too
    pair.connect()
    pair.settle()
    assert pair.at_owner == pair.in_pool


def test_a_gap_breaks_the_stream_and_the_resync_repairs_it(pair: Pair) -> None:
    pair.set(digest_of("a"), ticket=1)
    pair.send()
    pair.to_owner.clear()  # lost
    pair.set(digest_of("b"), ticket=2)
    pair.send()
    pair.deliver()
    pair.acknowledge()
    assert "missed" in pair.stream.broken
    assert not pair.side.final(pair.view), "an owner with a gap must not say that all is here"
    assert pair.done == []
    assert sorted(pair.reconnect()) == [1, 2], "nobody waits for a broken stream"
    pair.settle()
    assert pair.at_owner == pair.in_pool
    assert pair.side.final(pair.view)


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


def test_what_was_under_way_goes_first_on_the_next_connection(pair: Pair) -> None:
    pair.set(digest_of("a"), ticket=1)
    pair.send()
    assert pair.reconnect() == [1]
    pair.send()
    assert [batch.kind for batch in pair.to_owner] == [Kind.HELLO, Kind.ROWS]


def test_the_window_bounds_what_is_under_way(pair: Pair, monkeypatch: Any) -> None:
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


def test_what_is_kept_to_be_sent_again_behind_a_resync_is_bounded(
    pair: Pair, monkeypatch: Any
) -> None:
    monkeypatch.setattr(stream_module, "BATCH_BYTES_MAX", ROW_BYTES)
    monkeypatch.setattr(stream_module, "ECHO_BYTES_MAX", 2 * ROW_BYTES)
    pair.holder.set_page(pages(1, "lost")[0])
    want = wanted_by_resync(pair)
    pair.stream.scanning(want)
    for digest in pages(10):
        pair.set(digest)
    pair.send()
    assert len(pair.to_owner) == 2, "the others wait for the buckets"
    as_of, rows = pair.holder.pool_rows(pair.stream.owner, want.mask)
    pair.stream.give_rows(want.attempt, as_of, dict(FakeNative.split_buckets(rows)))
    pair.settle()
    assert pair.at_owner == pair.in_pool
    assert pair.stream.in_sync


def test_what_waits_for_the_next_connection_is_bounded(pair: Pair, monkeypatch: Any) -> None:
    """What was under way comes back on top of what waited."""
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


def test_a_full_queue_is_dropped_and_the_resync_finds_its_records(
    pair: Pair, monkeypatch: Any
) -> None:
    monkeypatch.setattr(stream_module, "QUEUE_BYTES_MAX", 10 * ROW_BYTES)
    tracked = [pair.set(digest, ticket) for ticket, digest in enumerate(pages(11), start=1)]
    assert tracked == [True] * 10 + [False]
    assert pair.stream.take_lost() == list(range(1, 11)), "those who wait are told"
    assert pair.stream.overflows == 1
    pair.settle()
    assert pair.at_owner == pair.in_pool
    assert pair.stream.in_sync


def test_a_withdrawal_that_overtakes_its_bucket_is_not_undone_by_it(pair: Pair) -> None:
    doomed, other = digest_of("doomed"), digest_of("other")
    pair.holder.set_page(doomed)
    pair.holder.set_page(other)
    want = wanted_by_resync(pair)
    pair.stream.scanning(want)
    as_of, rows = pair.holder.pool_rows(1, want.mask)  # sees the doomed page
    pair.evict(doomed)
    pair.send()
    pair.deliver()  # its withdrawal is at the owner before its bucket
    pair.stream.give_rows(want.attempt, as_of, dict(FakeNative.split_buckets(rows)))
    pair.settle()
    assert pair.at_owner == pair.in_pool
    assert doomed not in {digest for digest, _ in pair.at_owner}


def test_what_was_taken_back_does_not_come_again_for_a_moment(pair: Pair, monkeypatch: Any) -> None:
    """Who waited for the withdrawal has answered that it is gone."""
    monkeypatch.setattr(stream_module, "BATCH_BYTES_MAX", ROW_BYTES)
    scanned, short_lived = digest_of("scanned"), digest_of("short-lived")
    pair.holder.set_page(scanned)
    want = wanted_by_resync(pair)
    pair.stream.scanning(want)
    pair.set(short_lived)
    as_of, rows = pair.holder.pool_rows(1, want.mask)
    pair.evict(scanned)
    pair.evict(short_lived)
    pair.stream.offer(b"", 7)
    pair.send()
    pair.deliver()
    pair.acknowledge()
    assert pair.done == [7]
    pair.stream.give_rows(want.attempt, as_of, dict(FakeNative.split_buckets(rows)))
    while not pair.stream.in_sync:
        pair.send()
        for batch in list(pair.to_owner):
            pair.to_owner = deque([batch])
            pair.deliver()
            assert not pair.at_owner
        pair.acknowledge()


def test_an_owner_is_exact_once_compared_until_changes_are_lost(pair: Pair) -> None:
    assert pair.stream.exact
    assert pair.stream.at_rest
    pair.stream.set_view(2)
    pair.reconnect()
    assert pair.stream.exact, "what waits goes first on the new connection"
    assert not pair.stream.at_rest, "it has not taken the hello"
    pair.stream.resync()
    assert not pair.stream.exact
    assert not Pair().stream.exact, "it may have heard of an earlier stream of ours"


def test_an_owner_is_at_rest_once_it_takes_no_frame_of_before(pair: Pair) -> None:
    pair.fence += 1
    assert not pair.stream.at_rest
    pair.stream.offer(b"", 7)
    pair.settle()
    assert pair.stream.at_rest


def test_new_records_do_not_wait_for_a_resync(pair: Pair) -> None:
    for digest in pages(500):
        pair.holder.set_page(digest)
    want = wanted_by_resync(pair)
    pair.stream.scanning(want)  # it takes its time
    assert pair.set(digest_of("new"), ticket=5)
    pair.send()
    pair.deliver()
    pair.acknowledge()
    assert pair.done == [5]


def test_a_fingerprint_for_a_view_the_owner_does_not_have_yet_waits_for_it(pair: Pair) -> None:
    for digest in pages(30):
        pair.set(digest)
    pair.settle()
    pair.stream.set_view(2)
    pair.settle()
    assert not pair.stream.in_sync
    assert not pair.side.final(2)
    [(holder, epoch, ack)] = pair.side.set_view(2, [HOLDER_AT_OWNER])
    assert (holder, epoch) == (HOLDER_AT_OWNER, pair.side_epoch)
    pair.side.own_records_in_sync(2)
    assert pair.side.final(2)
    pair.to_holder.append(ack)
    pair.acknowledge()
    assert pair.stream.in_sync


def test_a_summary_for_a_view_the_owner_does_not_have_yet_waits_for_it(pair: Pair) -> None:
    for digest in pages(30):
        pair.holder.set_page(digest)
    pair.stream.set_view(2)
    for batch in (Kind.FINGERPRINT, Kind.SUMMARY):
        pair.settle()
        [(_, _, ack)] = pair.side.set_view(2, [HOLDER_AT_OWNER])
        pair.side.own_records_in_sync(2)
        assert not pair.side.final(2)
        pair.to_holder.append(ack)
        pair.acknowledge()
        pair.send()
        if batch is Kind.FINGERPRINT:  # the owner comes by an older view once more
            pair.side.set_view(1, [HOLDER_AT_OWNER])
    pair.settle()
    assert pair.stream.in_sync
    assert pair.side.final(2)


def test_after_a_view_change_nothing_is_final_until_the_holder_has_resynced(pair: Pair) -> None:
    assert pair.side.final(1)
    assert pair.owner.shard_final
    pair.side.view_changes()
    assert not pair.owner.shard_final
    pair.side.set_view(2, [HOLDER_AT_OWNER])
    pair.side.own_records_in_sync(2)
    assert not pair.side.final(2)
    pair.stream.set_view(2)
    pair.settle()
    assert pair.side.final(2)
    assert pair.owner.shard_final


def test_a_reader_with_another_view_gets_no_final_answer(pair: Pair) -> None:
    assert pair.side.final(pair.view)
    assert not pair.side.final(pair.view + 1)
    assert not pair.side.final(pair.view - 1)


def test_an_owner_that_gained_a_range_gets_the_records_of_it() -> None:
    pair = Pair(replicas=1)
    pair.connect()
    ring_of_three = {"h": 0, "o": 1, "x": 2}
    pair.holder.add_node("x", 1)
    pair.owner.add_node("x", 1)
    pair.holder.set_ring(*build_ring(ring_of_three), 1)
    pair.owner.set_ring(*build_ring({"h": 1, "o": 0, "x": 2}), 1)
    for digest in pages(200):
        if 1 in pair.holder.owners(digest):
            pair.set(digest)
        else:
            pair.holder.set_page(digest)
    pair.settle()
    before = len(pair.at_owner)
    pair.holder.set_ring(*build_ring({"h": 0, "o": 1}), 1)
    pair.owner.set_ring(*build_ring({"h": 1, "o": 0}), 1)
    pair.side.set_view(2, [HOLDER_AT_OWNER])
    pair.stream.set_view(2)
    pair.settle()
    assert len(pair.at_owner) > before
    assert pair.at_owner == pair.in_pool


def test_an_owner_that_refused_a_record_calls_nothing_final(pair: Pair) -> None:
    pair.owner.shard_capacity = 5
    for digest in pages(10):
        pair.set(digest)
    pair.settle()
    assert pair.stream.refused_full > 0
    assert not pair.side.final(pair.view)
    assert not pair.owner.shard_final
    pair.owner.shard_capacity = 1000
    pair.stream.resync()
    pair.settle()
    assert pair.at_owner == pair.in_pool
    assert pair.side.final(pair.view)


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


def test_a_large_resync_is_asked_for_in_pieces(pair: Pair, monkeypatch: Any) -> None:
    monkeypatch.setattr(stream_module, "GROUP_ROWS_MAX", 50)
    for digest in pages(400):
        pair.holder.set_page(digest)
    asked = []
    rows_of = pair.holder.pool_rows

    def counting(owner: int, mask: bytes) -> tuple[int, bytes]:
        as_of, rows = rows_of(owner, mask)
        asked.append(len(rows) // ROW_BYTES)
        return as_of, rows

    monkeypatch.setattr(pair.holder, "pool_rows", counting)
    pair.stream.resync()
    pair.settle()
    assert len(asked) >= 8
    assert max(asked) <= 50
    assert pair.at_owner == pair.in_pool


@pytest.mark.parametrize("seed", range(100))
def test_any_fate_of_messages_ends_with_equal_records(seed: int) -> None:
    """Loss, doubling, reordering, restarts of both sides and lost events, in any order."""
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
            digest = rng.choice(universe)  # the event is lost; the engine says so
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
    pair.stream.check(pair.now)  # what was lost last shows by time only
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


def test_what_a_full_owner_refused_is_tried_again_after_a_while_that_doubles(pair: Pair) -> None:
    pair.owner.shard_capacity = 5
    for digest in pages(10):
        pair.set(digest)
    pair.settle()
    tried: list[float] = []
    for tenths in range(10, 600):
        before = pair.stream.resyncs
        pair.stream.check(tenths / 10)
        pair.settle()
        if pair.stream.resyncs > before:
            tried.append(tenths / 10)
    assert [round(at) for at in tried[:3]] == [6, 16, 36], "after 5, 10 and 20 s"
    pair.owner.shard_capacity = 1000
    pair.stream.check(1000.0)
    pair.settle()
    assert pair.at_owner == pair.in_pool
    assert pair.side.final(pair.view)
    before = pair.stream.resyncs
    pair.stream.check(5000.0)
    pair.settle()
    assert pair.stream.resyncs == before, "nothing is left to try"
