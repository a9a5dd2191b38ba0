"""A stop ends callers before the parts that they ask."""

from __future__ import annotations

import asyncio

import pytest
from harness.fake_engine import digest_of
from harness.loop_node import LoopNode

from peercached import start_stop


@pytest.mark.parametrize("starting", [True, False])
async def test_nothing_asks_a_part_that_has_stopped(starting: bool) -> None:
    node = LoopNode("a")
    daemon = node.daemon
    await start_stop.start(daemon)

    async def ask_on() -> None:
        while True:
            await daemon.records.find(digest_of("x"), 1.0)

    spill = daemon.handover.spill
    spill._task = asyncio.ensure_future(ask_on())
    timers: list[object] = []
    stop_cluster = daemon.cluster.stop

    async def note_ticks() -> None:
        timers.extend(ticker._timer for ticker in daemon.tickers)
        await stop_cluster()

    daemon.cluster.stop = note_ticks
    daemon.phase.starting = starting
    await start_stop.stop(daemon)
    assert spill._task.cancelled()
    assert timers == [None, None]
