"""Followers of events: they miss nothing, or are told from where to go on."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from peercached.kv_events import followers
from peercached.kv_events.followers import Followers
from peercached.kv_events.shared_stream import SharedStream
from peercached.kv_events.stream import BATCH_BYTES, FromTheFuture, Stream
from peercached.peer.rpc.failures import Unable

FIRST = 100


class Told:
    """The engine's part: what it will tell, and what it has told."""

    def __init__(self) -> None:
        self.changes: list[bytes] = []
        self.told: list[bytes] = []

    def kv_drain(self, bytes_max: int) -> tuple[list[tuple[bytes, bytes, int]], bool]:
        batches = [(b"kv@a@n", change, 1) for change in self.changes]
        self.told += self.changes
        self.changes = []
        return batches, False

    def kv_snapshot(self) -> list[tuple[bytes, bytes, int]]:
        return [(b"kv@a@n", b"all of " + b",".join(self.told), 1)]


class Setting:
    def __init__(self, buffer_bytes: int = 1 << 20) -> None:
        self.engine = Told()
        self.stream = SharedStream(cast(Any, self.engine), Stream(FIRST, buffer_bytes))
        self.followers = Followers(self.stream)

    def tell(self, *changes: bytes) -> None:
        self.engine.changes += changes
        self.stream.drain(1 << 20)
        self.followers.woken()


async def test_a_follower_gets_what_is_kept_and_then_what_comes() -> None:
    here = Setting()
    here.tell(b"1", b"2")
    batches = here.followers.follow(FIRST)
    assert [(await anext(batches)).payload for _ in range(2)] == [b"1", b"2"]
    later = asyncio.ensure_future(anext(batches))
    await asyncio.sleep(0)
    here.tell(b"3")
    assert await later == (FIRST + 2, b"kv@a@n", b"3")
    assert len(here.followers) == 1
    await batches.aclose()
    assert len(here.followers) == 0


async def test_a_new_follower_begins_with_a_snapshot() -> None:
    here = Setting(buffer_bytes=1 + BATCH_BYTES)
    here.tell(b"one", b"two")
    batches = here.followers.follow(0)
    first = await anext(batches)
    assert first.payload == b"all of one,two"
    here.tell(b"3")
    second = await anext(batches)
    assert (second.number, second.payload) == (first.number + 1, b"3")
    await batches.aclose()


async def test_a_slow_follower_is_told_from_where_to_go_on() -> None:
    here = Setting(buffer_bytes=3 + BATCH_BYTES)
    here.tell(b"1")
    batches = here.followers.follow(FIRST)
    await anext(batches)
    here.tell(b"22", b"333")  # 22 is gone before it is read
    with pytest.raises(Unable, match=f"start = {FIRST + 1}"):
        await anext(batches)
    assert here.followers.too_slow == 1
    again = here.followers.follow(FIRST + 1)
    assert (await anext(again)).payload == b"all of 1,22,333"
    await again.aclose()


async def test_followers_end_with_the_daemon() -> None:
    here = Setting()
    batches = here.followers.follow(FIRST)
    waiting = asyncio.ensure_future(anext(batches, None))
    await asyncio.sleep(0)
    here.followers.end()
    assert await waiting is None


async def test_one_follower_too_many_and_numbers_of_the_future_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(followers, "FOLLOWERS_MAX", 1)
    here = Setting()
    here.tell(b"1")
    batches = here.followers.follow(FIRST)
    await anext(batches)
    with pytest.raises(Unable, match="1 callers follow"):
        await anext(here.followers.follow(FIRST))
    await batches.aclose()
    with pytest.raises(FromTheFuture):
        await anext(here.followers.follow(FIRST + 7))
    assert len(here.followers) == 0
