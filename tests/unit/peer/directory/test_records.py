"""Lookups that Python waits for run on threads, within the time that is left."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from peercached.peer.directory.records import MARGIN_S, Records


class Engine:
    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []

    def find_records(self, digests: bytes, timeout_ms: int) -> bytes:
        self.asked.append((digests, timeout_ms))
        return b"rows"

    def ask_owner(self, owner: int, digests: bytes, timeout_ms: int) -> tuple[bytes, bool] | None:
        self.asked.append((owner, digests, timeout_ms))
        return None if owner == 9 else (b"rows", True)


def test_lookups_get_the_time_that_is_left() -> None:
    engine = Engine()

    async def claim() -> None:
        records = Records(cast(Any, engine))
        assert await records.find(b"", 1.0) == b""
        assert await records.find(b"d" * 16, 1.0) == b"rows"
        assert await records.find(b"d" * 16, 0.0) == b"rows"
        assert await records.at_owner(3, b"d" * 16, 0.5) == (b"rows", True)
        assert await records.at_owner(9, b"d" * 16, 0.5) is None
        await records.stop()

    asyncio.run(claim())
    left_ms = round(1000 * (1.0 - MARGIN_S))
    page = b"d" * 16
    assert engine.asked == [(page, left_ms), (page, 1), (3, page, 500), (9, page, 500)]
