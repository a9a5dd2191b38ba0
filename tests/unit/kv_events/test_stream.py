"""Numbers, replays and snapshots of the stream of events."""

import pytest

from peercached.kv_events.stream import BATCH_BYTES, FromTheFuture, Stream

PAYLOAD = bytes(10)


def filled(batches: int, kept: int = 1000) -> Stream:
    stream = Stream(100, buffer_bytes=kept * (len(PAYLOAD) + BATCH_BYTES))
    for number in range(batches):
        stream.append(f"t{number}".encode(), PAYLOAD)
    return stream


def numbers(stream: Stream, start: int) -> list[int]:
    return [batch.number for batch in stream.replay(start)]


def test_what_is_kept_is_replayed_from_any_number() -> None:
    stream = filled(5)
    assert numbers(stream, 100) == [100, 101, 102, 103, 104]
    assert numbers(stream, 103) == [103, 104]
    assert numbers(stream, 105) == []
    assert not stream.needs_snapshot(100)


def test_a_number_of_the_future_is_refused() -> None:
    with pytest.raises(FromTheFuture, match="106 is asked for, and 105 is the next"):
        filled(5).needs_snapshot(106)


def test_a_snapshot_has_the_numbers_below_what_follows() -> None:
    stream = filled(20, kept=3)
    assert stream.needs_snapshot(100)
    stream.keep_snapshot([(b"kv@", b"x")] * 4)
    replay = stream.replay(100)
    assert [next(replay).number for _ in range(4)] == [116, 117, 118, 119]
    stream.append(b"later", PAYLOAD)
    assert [batch.topic for batch in replay] == [b"later"]
    assert not stream.needs_snapshot(100), "it serves others for a while"
    assert numbers(stream, 100) == [116, 117, 118, 119, 120]


def test_a_snapshot_with_too_few_free_numbers_makes_the_stream_skip_some() -> None:
    stream = filled(6, kept=3)
    stream.keep_snapshot([(b"kv@", b"x")] * 10)
    assert numbers(stream, 101) == list(range(106, 116))
    assert stream.append(b"later", PAYLOAD).number == 116
    # It has events behind it now, so it cannot be moved again.
    assert not stream.needs_snapshot(101)
    assert stream.needs_snapshot(102) is False
    assert numbers(stream, 105) == [105, 116], "others see a gap with nothing in it"


def test_an_old_snapshot_is_made_anew() -> None:
    stream = filled(20, kept=3)
    stream.keep_snapshot([(b"kv@", b"x")])
    for _ in range(4):
        stream.append(b"later", PAYLOAD)
    assert stream.needs_snapshot(100)


def test_empty_batches_take_room_in_the_buffer() -> None:
    stream = Stream(0, buffer_bytes=1 << 20)
    for _ in range(5000):
        stream.append(b"kv@a@", b"")
    assert stream.needs_snapshot(0) and not stream.needs_snapshot(4000)
