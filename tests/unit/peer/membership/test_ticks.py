"""Periodic tasks continue after one run raises an exception."""

from __future__ import annotations

import asyncio
import random
from types import SimpleNamespace
from typing import Any, cast

import pytest
from harness.clock import seconds

from peercached.membership import Membership, NodeAddress, Timing
from peercached.news import News
from peercached.peer.membership.embedded.heartbeats import Heartbeats
from peercached.periodic import Periodic


def test_failing_task_stops_neither_other_tasks_nor_the_next_tick(
    caplog: pytest.LogCaptureFixture,
) -> None:
    calls: list[str] = []

    class Fails:
        def tend(self, now: float) -> None:
            calls.append("fails")
            raise RuntimeError("a bug")

    async def story() -> None:
        third = asyncio.Event()

        class Works:
            def tend(self, now: float) -> None:
                calls.append("works")
                if calls.count("works") == 3:
                    third.set()

        periodic = Periodic(0.001, [Fails(), Works()])
        periodic.start()
        await asyncio.wait_for(third.wait(), seconds(10))
        periodic.stop()

    asyncio.run(story())
    assert calls[:6] == ["fails", "works"] * 3
    assert "will retry" in caplog.text


def test_membership_ticks_on_after_a_tick_that_failed(caplog: pytest.LogCaptureFixture) -> None:
    timing = Timing(0.01, 0.05)

    async def story() -> None:
        membership = Membership(
            NodeAddress("a", 1, "a", 1, 2), ["a:1"], 0, timing, 0.0, random.Random(1)
        )
        again, ticks = asyncio.Event(), 0

        def tick(now: float) -> list[Any]:
            nonlocal ticks
            ticks += 1
            if ticks == 1:
                raise RuntimeError("a bug")
            again.set()
            return []

        membership.tick = tick
        signs = SimpleNamespace(take=lambda now: [], say=lambda sign, for_s: None)
        nothing = cast(Any, SimpleNamespace())
        beats = Heartbeats(membership, timing, nothing, cast(Any, signs), News())
        beats.start()
        await asyncio.wait_for(again.wait(), seconds(10))
        await beats.stop()

    asyncio.run(story())
    assert "will retry" in caplog.text
