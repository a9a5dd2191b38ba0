"""A peer that reads slowly takes a part in pieces that it can read in time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from peercached.peer.handover.drain import Drain
from peercached.peer.handover.parts import Answer, Part

ROWS = {bytes([number]) * 16: bytes(64) for number in range(200)}
PEER = cast(Any, object())


async def withdraw(*_: object) -> None:
    pass


OWN_RECORDS = cast(Any, SimpleNamespace(withdraw=withdraw))


@pytest.mark.parametrize(("reads", "takes"), [(200, 30), (12, 12), (1, 1)])
def test_a_slow_peer_gets_all_pages(reads: int, takes: int) -> None:
    """It takes some of an offer, or none of one with more than `reads` pages."""

    async def offer(node: Any, part: Part, rows: Mapping[bytes, bytes]) -> Answer:
        return Answer(list(rows)[:takes] if len(rows) <= reads else [])

    nothing = cast(Any, None)
    offers = cast(Any, SimpleNamespace(offer=offer))
    drain = Drain(nothing, nothing, offers, OWN_RECORDS, nothing, nothing, nothing)
    left = dict(ROWS)
    part = Part(b"n" * 16, 0, 0, 0, ROWS)
    assert asyncio.run(drain._offer(PEER, part, ROWS, left))
    assert not left


def test_a_peer_that_takes_nothing_is_asked_a_few_times() -> None:
    asked: list[int] = []

    async def offer(node: Any, part: Part, rows: Mapping[bytes, bytes]) -> Answer:
        asked.append(len(rows))
        return Answer(why_not="they are being removed")

    nothing = cast(Any, None)
    offers = cast(Any, SimpleNamespace(offer=offer))
    drain = Drain(nothing, nothing, offers, OWN_RECORDS, nothing, nothing, nothing)
    left = dict(ROWS)
    assert asyncio.run(drain._offer(PEER, Part(b"n" * 16, 0, 0, 0, ROWS), ROWS, left))
    assert asked == [200, 100, 50, 25, 12, 6, 3, 1]
