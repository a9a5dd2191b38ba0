"""Implausibly large numbers from a lying or broken member."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from peercached.membership import (
    Gone,
    Heartbeat,
    HeartbeatAnswer,
    Member,
    Membership,
    NodeAddress,
    State,
    Timing,
    Verdict,
    View,
    ViewUpdate,
)
from peercached.membership.reach import (
    FIRST_ASKED_MAX,
    FIRST_MAX,
    LEAP,
    SEQUENCE_FIRST_MAX,
    SEQUENCE_STEP,
    STEP,
    ViewReach,
)
from peercached.membership.view import MARK_BITS, SEQUENCE_MAX, VIEW_NUMBER_MAX

TIMING = Timing(1.0, 5.0)
NOW = 1000.0


def address(node_id: str) -> NodeAddress:
    return NodeAddress(node_id, 1, node_id, 1, 2)


def node(name: str, rank: int | None = None, remembered: View | None = None) -> Membership:
    rng = random.Random(1)
    return Membership(address(name), ["a:1"], rank, TIMING, NOW, rng, 1, remembered)


def head_with_b() -> Membership:
    head = node("a", 0)
    head.tick(NOW)
    head.on_heartbeat(Heartbeat(Member(address("b")), 0), NOW)
    head.tick(NOW + 1)
    assert {m.node_id for m in head.view.members} == {"a", "b"}
    return head


def ids(membership: Membership) -> set[str]:
    return {m.node_id for m in membership.latest.members}


def number(counter: int) -> int:
    return counter << MARK_BITS


@pytest.mark.parametrize("lie", [VIEW_NUMBER_MAX - 1, number(FIRST_MAX), number(3 + LEAP)])
def test_a_view_number_out_of_reach_does_not_keep_others_from_joining(lie: int) -> None:
    head = head_with_b()
    before = head.latest.counter
    answer, _ = head.on_heartbeat(Heartbeat(Member(address("b")), lie), NOW + 1)
    assert not answer.wants_view
    head.on_heartbeat(Heartbeat(Member(address("c")), 0), NOW + 2)
    head.tick(NOW + 3)
    assert ids(head) == {"a", "b", "c"}
    assert head.latest.counter == before + 1
    assert head.reach.refused == 1


def test_a_view_out_of_reach_is_not_adopted() -> None:
    head = head_with_b()
    forged = View.numbered(VIEW_NUMBER_MAX - 1 >> MARK_BITS, View.of(0, [Member(address("b"))]))
    update = ViewUpdate.whole(forged)
    head.on_heartbeat(Heartbeat(Member(address("b")), forged.number, update), NOW + 1)
    assert ids(head) == {"a", "b"}


def test_long_absent_node_takes_the_current_view() -> None:
    member = node("b", remembered=View.numbered(7, View.of(0, [Member(address("b"))])))
    member.tick(NOW)
    both = [Member(address("a")), Member(address("b"))]
    for at, counter in ((NOW, 9 * LEAP), (NOW + 1, 10 * LEAP)):
        view = View.numbered(counter, View.of(0, both))
        answer = HeartbeatAnswer(Verdict.ACCEPTED, update=ViewUpdate.whole(view), responder="a")
        member.answered("a:1", answer, at)
        assert member.latest.number == view.number


def test_view_number_leaps_are_rate_limited() -> None:
    reach = ViewReach(5.0)
    assert reach.has(number(1 + STEP), number(1), NOW)
    assert reach.has(number(1 + LEAP), number(1), NOW)
    assert reach.has(number(1 + LEAP), number(1), NOW), "the same one, told again"
    assert not reach.has(number(1 + 2 * LEAP), number(1 + LEAP), NOW + 1)
    assert reach.has(number(1 + 2 * LEAP), number(1 + LEAP), NOW + 5)
    assert not reach.has(number(2 + 3 * LEAP), number(1 + 2 * LEAP), NOW + 99)
    assert reach.refused == 2


def test_new_node_adopts_high_view_numbers_only_from_answers() -> None:
    member = node("b")
    member.tick(NOW)
    high = View.numbered(FIRST_MAX + 9, View.of(0, [Member(address("a")), Member(address("b"))]))
    update = ViewUpdate.whole(high)
    member.on_heartbeat(Heartbeat(Member(address("a")), high.number, update), NOW)
    assert member.latest.number == 0
    member.answered("a:1", HeartbeatAnswer(Verdict.ACCEPTED, "", update, "a"), NOW)
    assert member.latest.number == high.number


def test_remembered_view_number_cannot_exhaust_the_counter() -> None:
    head = node("a", 0, View.numbered(FIRST_ASKED_MAX + 1, View.of(0, [Member(address("a"))])))
    head.tick(NOW)
    head.tick(NOW + 5)
    assert 0 < head.latest.counter < 10


@pytest.mark.parametrize("sequence", [SEQUENCE_MAX - 1, 2 * SEQUENCE_STEP])
def test_tombstone_with_an_implausible_sequence_removes_nobody(sequence: int) -> None:
    head = head_with_b()
    tombstone = Gone("b", 1, sequence, State.DEAD)
    view = head.latest.next([Member(address("a"))])
    update = ViewUpdate.whole(view, gone=(tombstone,))
    head.on_heartbeat(Heartbeat(Member(address("c")), view.number, update), NOW + 1)
    head.tick(NOW + 1)
    assert "b" in ids(head)
    answer, _ = head.on_heartbeat(Heartbeat(Member(address("b")), head.latest.number), NOW + 2)
    assert answer.verdict is Verdict.ACCEPTED


def test_node_does_not_object_with_an_exhausting_sequence_number() -> None:
    member = node("b")
    member.tick(NOW)
    accusing = HeartbeatAnswer(Verdict.WAIT, "", responder="a", accused=SEQUENCE_MAX - 1)
    member.answered("a:1", accusing, NOW)
    assert member.own.sequence == 0
    member.answered("a:1", replace(accusing, accused=5), NOW)
    assert member.own.sequence == 6


def test_a_newcomer_with_a_sequence_out_of_reach_waits() -> None:
    head = head_with_b()
    newcomer = Member(address("c"), sequence=SEQUENCE_FIRST_MAX + 1)
    answer, _ = head.on_heartbeat(Heartbeat(newcomer, 0), NOW + 1)
    assert answer.verdict is Verdict.WAIT
    assert "far above" in answer.reason
