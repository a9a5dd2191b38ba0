"""A node that was away learns of every clear before it opens its workers' socket."""

import logging
from typing import Any

import pytest
from harness.fake_engine import FakeEngine, digest_of
from harness.loop_node import LoopNode, in_sync

from peercached.directory.epochs import EPOCHS_PER_MESSAGE_MAX
from peercached.peer.server.servicer import PeerServicer

CLEARED = 5 * EPOCHS_PER_MESSAGE_MAX


def note_what_is_known_at_start(engine: FakeEngine, known: list[int]) -> None:
    engine.start = lambda: known.append(len(engine.epochs))


async def test_all_epochs_are_known_when_workers_may_come() -> None:
    known: list[int] = []
    async with LoopNode("a") as head:
        for number in range(CLEARED):
            head.engine.raise_epoch(digest_of(str(number)), 2)
        late = LoopNode("b", heads=[head])
        note_what_is_known_at_start(late.engine, known)
        async with late:
            await in_sync(head, late)
        assert known == [CLEARED]


async def test_a_member_that_does_not_tell_costs_no_start(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def refuse(_: PeerServicer, request: Any, context: Any) -> Any:
        raise LookupError("not now")

    monkeypatch.setattr(PeerServicer, "Epochs", refuse)

    caplog.set_level(logging.WARNING)
    async with LoopNode("a") as head, LoopNode("b", heads=[head]) as late:
        await in_sync(head, late)
    assert "could say which namespaces were cleared" in caplog.text
