"""When its owner may have missed records, a stream compares and repairs."""

from __future__ import annotations

from collections import deque
from typing import Any

from harness.fake_engine import FakeNative, build_ring, digest_of
from harness.record_stream import HOLDER_AT_OWNER, Pair, pages

from peercached.directory import stream as stream_module
from peercached.directory.layout import ROW_BYTES
from peercached.directory.messages import Kind
from peercached.directory.stream import Want


def test_an_empty_pool_is_in_sync_without_any_bucket(pair: Pair) -> None:
    assert pair.stream.in_sync
    assert pair.side.final(pair.view)


def kinds_sent(pair: Pair) -> list[Kind]:
    """Runs the stream until it is at rest. Returns the kinds of its batches."""
    sent: list[Kind] = []
    for _ in range(20):
        pair.scan()
        pair.send()
        sent += [batch.kind for batch in pair.to_owner]
        pair.deliver()
        pair.acknowledge()
    return sent


def wanted_by_resync(pair: Pair) -> Want:
    """The stream's request for pool contents once the owner has reported the differences."""
    pair.stream.resync()
    pair.scan()
    for _ in range(2):
        pair.send()
        pair.deliver()
        pair.acknowledge()
    want = pair.stream.wanted()
    assert want is not None and want.mask
    return want


def test_complete_owner_is_sent_only_a_fingerprint(pair: Pair) -> None:
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
        pair.holder.drop_page(digest)  # the event is lost as well
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


def test_echo_kept_during_a_resync_is_bounded(pair: Pair, monkeypatch: Any) -> None:
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
    as_of, rows = pair.holder.pool_rows(1, want.mask)  # still includes the doomed page
    pair.evict(doomed)
    pair.send()
    pair.deliver()  # the owner gets the withdrawal before the bucket
    pair.stream.give_rows(want.attempt, as_of, dict(FakeNative.split_buckets(rows)))
    pair.settle()
    assert pair.at_owner == pair.in_pool
    assert doomed not in {digest for digest, _ in pair.at_owner}


def test_withdrawn_records_do_not_reappear_after_a_resync(pair: Pair, monkeypatch: Any) -> None:
    """The caller that waited for the withdrawal has already reported success."""
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


def test_owner_is_at_rest_once_it_rejects_earlier_frames(pair: Pair) -> None:
    pair.fence += 1
    assert not pair.stream.at_rest
    pair.stream.offer(b"", 7)
    pair.settle()
    assert pair.stream.at_rest


def test_new_records_do_not_wait_for_a_resync(pair: Pair) -> None:
    for digest in pages(500):
        pair.holder.set_page(digest)
    want = wanted_by_resync(pair)
    pair.stream.scanning(want)  # the scan is slow
    assert pair.set(digest_of("new"), ticket=5)
    pair.send()
    pair.deliver()
    pair.acknowledge()
    assert pair.done == [5]


def test_fingerprint_for_a_future_view_waits_for_that_view(pair: Pair) -> None:
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


def test_summary_for_a_future_view_waits_for_that_view(pair: Pair) -> None:
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
        if batch is Kind.FINGERPRINT:  # the owner goes through an older view again
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


def test_refused_records_are_retried_after_a_doubling_delay(pair: Pair) -> None:
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
