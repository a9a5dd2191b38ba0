"""The interface of the node to its own parts and its peers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

from peercached.peer.service.local_node import LocalNode


def test_late_answer_after_a_cancelled_wait_is_harmless() -> None:
    """The peer's call ends at its deadline. The awaited result arrives later, when another peer
    dies."""
    answers: list[Callable[[set[int]], None]] = []

    def take_back(rows: bytes, now: float, left_s: float, done: Callable[..., None]) -> None:
        answers.append(done)

    async def claim() -> None:
        nothing = cast(Any, None)
        publisher = cast(Any, SimpleNamespace(take_back=take_back))
        placement = cast(Any, SimpleNamespace(nodes={}))
        node = LocalNode(
            *(nothing, nothing, placement, nothing, publisher, nothing, nothing, nothing),
            *(nothing, nothing, nothing, nothing),
            timeout_s=1.0,
            handle_events=lambda: None,
        )
        call = asyncio.ensure_future(node.published(b""))
        await asyncio.sleep(0)
        call.cancel()
        await asyncio.wait([call])
        assert call.cancelled()
        answers[0]({1})

    asyncio.run(claim())
