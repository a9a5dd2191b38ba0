"""The queue of hints is bounded, and serves namespaces in turn."""

from __future__ import annotations

import asyncio

from peercached.hints.turns import WORKS_MAX, WORKS_PER_NAMESPACE_MAX, Turns


async def test_flood_of_one_namespace_delays_another_by_one_work() -> None:
    turns: Turns[str] = Turns()
    for number in range(5):
        turns.add("flood", f"flood {number}")
    turns.add("other", "other 0")
    taken = [await turns.take() for _ in range(6)]
    assert taken[:3] == ["flood 0", "other 0", "flood 1"]
    assert taken[3:] == ["flood 2", "flood 3", "flood 4"] and not len(turns)


async def test_queue_is_bounded_by_namespace_and_in_all() -> None:
    turns: Turns[int] = Turns()
    for number in range(WORKS_PER_NAMESPACE_MAX):
        assert not turns.why_full("one")
        turns.add("one", number)
    assert "32 are the limit, send fewer" in turns.why_full("one")
    for number in range(WORKS_MAX - WORKS_PER_NAMESPACE_MAX):
        assert not turns.why_full(f"n{number}")
        turns.add(f"n{number}", number)
    assert "256 are the limit of a node" in turns.why_full("another")


async def test_taker_waits_for_work() -> None:
    turns: Turns[str] = Turns()
    taker = asyncio.ensure_future(turns.take())
    await asyncio.sleep(0)
    assert not taker.done()
    turns.add("n", "work")
    assert await taker == "work"
