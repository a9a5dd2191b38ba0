"""Parts taken over at a time: the bound holds although a caller gives up."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest
from harness.clock import seconds
from harness.waiting import eventually

from peercached.directory.placement import Node
from peercached.membership import NodeAddress
from peercached.peer.handover.adopts import Adopts
from peercached.peer.handover.parts import ADOPTS_MAX
from peercached.peer.rpc.failures import Unable
from peercached.proto import peer_pb2 as pb

GIVER = Node(3, NodeAddress("giver", 7, "10.0.0.3", 1, 2))


async def test_a_part_that_its_caller_gave_up_counts_until_it_ends() -> None:
    goes_on, begun = threading.Event(), threading.Semaphore(0)

    def adopt(*_: object) -> tuple[bytes, str, bool, int, int]:
        begun.release()
        assert goes_on.wait(seconds(20))
        return b"", "", False, 0, 0

    engine = SimpleNamespace(adopt=adopt)
    placement = SimpleNamespace(member=lambda _: GIVER)
    adopts = Adopts(cast(Any, engine), cast(Any, placement), cast(Any, None), 1.0)

    def call() -> asyncio.Task[pb.AdoptReply]:
        return asyncio.ensure_future(adopts.adopt(GIVER.address, pb.AdoptRequest()))

    calls = [call() for _ in range(ADOPTS_MAX)]
    for _ in calls:
        assert await asyncio.to_thread(begun.acquire, timeout=seconds(20))
    for one in calls:
        one.cancel()
    await asyncio.gather(*calls, return_exceptions=True)
    try:
        with pytest.raises(Unable, match="are being taken over already"):
            await call()
    finally:
        goes_on.set()
    await asyncio.to_thread(eventually, lambda: adopts._running == 0)
    await call()
