"""Heads with names that get other addresses, and a node that meets itself."""

from __future__ import annotations

import asyncio
import random
from unittest.mock import AsyncMock

import pytest
from harness.clock import seconds

from peercached.membership import (
    Heartbeat,
    HeartbeatAnswer,
    Member,
    NodeAddress,
    SendBeat,
    Timing,
    Verdict,
)
from peercached.membership.membership import Membership
from peercached.peer.rpc import heads

TIMING = Timing(1.0, 5.0)
NOW = 1000.0


def address(incarnation: int = 7, key: bytes = b"k") -> NodeAddress:
    return NodeAddress("x", incarnation, "x", 1, 2, key=key)


def node(heads: list[str]) -> Membership:
    return Membership(address(), heads, None, TIMING, NOW, random.Random(1))


def beats(x: Membership, now: float) -> list[str]:
    return [action.endpoint for action in x.tick(now) if isinstance(action, SendBeat)]


def test_a_node_never_takes_itself_for_a_duplicate() -> None:
    x = node(["a:1"])
    answer, _ = x.on_heartbeat(Heartbeat(Member(address()), 0), NOW)
    assert answer.verdict is Verdict.NOT_A_MASTER
    for other in (address(incarnation=8), address(key=b"other")):
        answer, _ = x.on_heartbeat(Heartbeat(Member(other), 0), NOW)
        assert answer.verdict is Verdict.DUPLICATE


def test_a_node_whose_name_resolves_late_begins_the_cluster_then() -> None:
    x = node(["heads:1"])
    assert beats(x, NOW) == ["heads:1"]
    x.failed("heads:1", "it does not resolve", NOW)
    x.heads_are({"a:1": 0, "x:1": 0}, NOW + 1)
    assert beats(x, NOW + 1) == ["a:1"]
    now = NOW + 1
    while not x.view.number:
        assert now < NOW + 30
        x.failed("a:1", "refused", now)
        now += 1
        x.tick(now)
    assert x.own.head_rank == 0
    # Its place stays, although a later answer of the resolver lacks it.
    x.heads_are({"b:1": 0}, now)
    assert x.own.head_rank == 0
    assert x.endpoints() == {"b:1"}


def test_an_address_that_leads_home_makes_a_head_and_is_asked_again() -> None:
    x = node(["forwarder:1"])
    x.tick(NOW)
    x.led_home("forwarder:1", NOW)
    assert x.own.head_rank == 0
    assert beats(x, NOW + 1) == ["forwarder:1"]
    x.answered("forwarder:1", HeartbeatAnswer(Verdict.ACCEPTED, responder="b"), NOW + 1)
    assert x.is_master(NOW + 1)
    assert beats(x, NOW + 3) == ["forwarder:1"]


async def test_a_name_is_asked_for_again_after_an_unexpected_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    look_up = AsyncMock(side_effect=[RuntimeError("no thread is left"), ["10.0.0.9"]])
    monkeypatch.setattr(heads, "look_up", look_up)
    monkeypatch.setattr(heads, "UNKNOWN_AGAIN_S", 0.001)
    known = heads.Heads(["heads:1"], "10.0.0.1", 1)
    known.start()
    await asyncio.wait_for(known.changed(), seconds(10))
    known.stop()
    assert known.places() == {"10.0.0.9:1": 0}
