"""Suspicion of peers, and the backoff of pings to a suspect."""

import asyncio
import time
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import AsyncMock, Mock

import pytest
from harness.said import sentences
from harness.waiting import eventually

from peercached.directory.placement import Node
from peercached.events import Events
from peercached.membership import NodeAddress
from peercached.news import News
from peercached.peer.rpc import suspects as of_suspects
from peercached.peer.rpc.failure_detector import FAIR_S, FailureDetector
from peercached.peer.rpc.failures import Disconnected, ReadFailed, TimedOut
from peercached.peer.rpc.suspects import PING_FIRST_S, PING_MAX_S, RELAPSE_S, Suspects


def node(index: int = 1) -> Node:
    return Node(index, NodeAddress(f"n{index}", 1, "10.0.0.1", 1, 2))


def ping_at(suspects: Suspects, now: float) -> float:
    return suspects.next_at() - now


def test_one_sign_is_enough_and_one_answer_too() -> None:
    suspects, peer = Suspects(), node()
    assert suspects.suspect(peer, "silent", 0.0)
    assert peer.suspect
    assert not suspects.suspect(peer, "still silent", 0.1), "it was already"
    assert suspects.reasons() == [(peer, "silent", 0.0, False)]
    assert suspects.due(PING_FIRST_S) == [peer]
    assert suspects.due(PING_FIRST_S) == [], "it is being asked"
    assert suspects.answered(peer, 0.3)
    assert not peer.suspect
    assert suspects.next_at() == float("inf")


def test_peer_whose_pages_did_not_come_stays_suspect_until_they_can() -> None:
    suspects, peer = Suspects(), node()
    suspects.suspect(peer, "its data port refuses", 0.0, of_pages=True)
    assert suspects.due(PING_FIRST_S) == [peer]
    assert not suspects.answered(peer, 0.3)
    assert suspects.wants_proof(peer)
    suspects.silent(peer, 0.4, lives=True)
    assert peer.suspect
    assert suspects.reasons() == [(peer, "its data port refuses", 0.0, True)]
    assert not suspects.calls(peer), "a call says nothing of its pages"
    assert suspects.due(suspects.next_at()) == [peer]
    assert not suspects.answered(peer, 1.0)
    assert suspects.answered(peer, 1.1, pages_can_come=True)
    assert not peer.suspect


async def test_a_proof_that_fails_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_suspects, "PING_FIRST_S", 0.001)
    peer, pinged = node(), AsyncMock()
    engine = Mock()
    engine.prove_paths.side_effect = [RuntimeError("no thread is left"), [True]]
    failures = FailureDetector(
        engine,
        cast(Any, SimpleNamespace(nodes={peer.index: peer}, own=None)),
        cast(Any, SimpleNamespace(link=lambda _: SimpleNamespace(call_within=pinged))),
        News(),
        1.0,
    )
    failures.failed(peer, ReadFailed("its pages do not come"))
    await asyncio.to_thread(eventually, lambda: not peer.suspect)
    assert pinged.await_count == engine.prove_paths.call_count == 2


def test_silent_peer_is_pinged_with_backoff_up_to_a_limit() -> None:
    suspects, peer = Suspects(), node()
    suspects.suspect(peer, "silent", 0.0)
    now, pauses = 0.0, []
    for _ in range(20):
        pauses.append(ping_at(suspects, now))
        now = suspects.next_at()
        assert suspects.due(now) == [peer]
        suspects.silent(peer, now)
    assert pauses[:3] == pytest.approx([PING_FIRST_S, 2 * PING_FIRST_S, 4 * PING_FIRST_S])
    assert max(pauses) == pytest.approx(PING_MAX_S)


def test_relapsing_peer_is_trusted_later_each_time() -> None:
    suspects, peer = Suspects(), node()
    now, pauses = 0.0, []
    for _ in range(10):
        suspects.suspect(peer, "its data port fails", now)
        pauses.append(ping_at(suspects, now))
        now = suspects.next_at()
        suspects.due(now)
        suspects.answered(peer, now)
    assert pauses == sorted(pauses)
    assert pauses[-1] == pytest.approx(PING_MAX_S)
    now += RELAPSE_S
    suspects.suspect(peer, "again after a long time", now)
    assert ping_at(suspects, now) == pytest.approx(PING_FIRST_S)


def test_refusing_peer_is_asked_at_once_and_then_with_backoff() -> None:
    suspects, peer = Suspects(), node()
    suspects.suspect(peer, "it does not know our token", 0.0, answers=True)
    assert suspects.due(0.0) == [peer]
    assert suspects.answered(peer, 0.01)
    suspects.suspect(peer, "still not", 0.02, answers=True)
    assert ping_at(suspects, 0.02) > PING_FIRST_S


def test_call_from_a_silent_peer_shortens_its_next_ping_once() -> None:
    suspects, peer = Suspects(), node()
    suspects.suspect(peer, "silent", 0.0)
    now = 0.0
    for _ in range(5):
        now = suspects.next_at()
        suspects.due(now)
        assert not suspects.calls(peer), "it is being asked"
        suspects.silent(peer, now)
    assert ping_at(suspects, now) > PING_FIRST_S
    assert suspects.calls(peer)
    assert ping_at(suspects, now) == pytest.approx(PING_FIRST_S)
    assert not suspects.calls(peer)
    assert ping_at(suspects, now) == pytest.approx(PING_FIRST_S)


def test_calls_from_a_peer_with_failing_data_port_change_nothing() -> None:
    suspects, peer = Suspects(), node()
    for now in (0.0, 1.0):
        suspects.suspect(peer, "its data port fails", now)
        assert not suspects.calls(peer)
        suspects.due(suspects.next_at())
        suspects.answered(peer, now + 0.5)


def test_another_node_with_the_index_inherits_nothing() -> None:
    suspects, old, new = Suspects(), node(), node()
    suspects.suspect(old, "silent", 0.0)
    suspects.forget(old)
    assert suspects.reasons() == []
    suspects.suspect(new, "silent", 0.0)
    assert not suspects.answered(old, 0.1), "a late answer of the one before"
    assert new.suspect


def detector_of(peer: Node) -> FailureDetector:
    placement = SimpleNamespace(nodes={peer.index: peer}, own=None)
    detector = FailureDetector(
        cast(Any, Mock()), cast(Any, placement), cast(Any, None), News(), 1.0
    )
    detector._schedule = lambda: None
    return detector


def test_short_timeout_is_no_suspicion_but_a_broken_connection_is() -> None:
    peer = node()
    detector = detector_of(peer)
    detector.failed(peer, TimedOut("10.0.0.5:1", FAIR_S / 2))
    assert not peer.suspect
    detector.failed(peer, TimedOut("10.0.0.5:1", FAIR_S))
    assert peer.suspect
    detector.suspects.answered(peer, 0.0)
    detector.failed(peer, Disconnected("10.0.0.5:1: refused"))
    assert peer.suspect


def test_the_finding_says_how_long_a_peer_is_suspect_from_a_second_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    peer = node()
    detector = detector_of(peer)
    detector.failed(peer, Disconnected("10.0.0.5:1: refused"))
    began = time.monotonic()
    for passed, words in ((0.1, "is suspect: "), (5.5, "is suspect (for 5 s): ")):
        monkeypatch.setattr(time, "monotonic", lambda: began + passed)  # noqa: B023
        [found] = sentences(lambda say: detector.say(say, {}))
        assert words in found


@pytest.mark.parametrize("token_unknown", [True, False])
def test_peer_that_refuses_our_token_is_pinged_at_once(token_unknown: bool) -> None:
    peer = node()
    detector = detector_of(peer)
    placement = SimpleNamespace(nodes={peer.index: peer})
    events = Events.__new__(Events)
    events._placement, events._failures = cast(Any, placement), detector
    events._peer_trouble(0, 0.0, peer.index, peer.address.incarnation, token_unknown, b"refused")
    assert peer.suspect
    assert bool(detector.suspects.due(time.monotonic())) == token_unknown
