"""Membership: heads, views, incarnations, with a clock that the test turns."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from peercached.membership import (
    Heartbeat,
    HeartbeatAnswer,
    Membership,
    NodeAddress,
    PushView,
    Refused,
    SendHeartbeat,
    Timing,
    Verdict,
    View,
    ViewChanged,
)
from peercached.membership.head import MEMBERS_MAX, HeadTable
from peercached.membership.state import VIEW_SPACING_S

TIMING = Timing(heartbeat_interval_s=1.0, member_ttl_s=5.0)
SOON = VIEW_SPACING_S + 0.01


def node(node_id: str, incarnation: int = 1, host: str = "") -> NodeAddress:
    return NodeAddress(node_id, incarnation, host or f"host-{node_id}", 31998, 31999)


def head(node_id: str = "h0", rank: int = 0, heads: int = 1, now: float = 0.0) -> Membership:
    endpoints = [node(f"h{i}").endpoint for i in range(heads)]
    state = Membership(node(node_id), endpoints, rank, TIMING, now, random.Random(1))
    state.tick(now)
    return state


def member(node_id: str, heads: int = 1, incarnation: int = 1, host: str = "") -> Membership:
    endpoints = [node(f"h{i}").endpoint for i in range(heads)]
    address = node(node_id, incarnation, host)
    return Membership(address, endpoints, None, TIMING, 0.0, random.Random(2))


def beat(address: NodeAddress, view_number: int = 0, view: View | None = None) -> Heartbeat:
    return Heartbeat(address, view_number, view is not None, view)


def ids(view: View | None) -> list[str]:
    return [m.node_id for m in view.members] if view is not None else []


def kinds(actions: list[Any]) -> list[type]:
    return [type(action) for action in actions]


def test_a_node_without_heads_is_a_cluster_of_its_own() -> None:
    alone = Membership(node("a"), [], None, TIMING, 0.0, random.Random(1))
    assert alone.tick(0.0) == []
    assert alone.settled
    assert (alone.view.number, ids(alone.view)) == (0, ["a"])


def test_the_first_head_makes_a_view_of_itself_at_once() -> None:
    state = head()
    assert (state.view.number, state.view.master, ids(state.view)) == (1, "h0", ["h0"])


def test_a_newcomer_gets_a_view_with_itself_in_the_answer() -> None:
    state = head()
    answer, actions = state.on_heartbeat(beat(node("a")), SOON)
    assert answer.verdict is Verdict.ACCEPTED
    assert ids(answer.view) == ["a", "h0"]
    assert kinds(actions) == [ViewChanged, PushView]


def test_joins_that_come_together_make_one_view() -> None:
    state = head()
    number = state.view.number
    state.on_heartbeat(beat(node("a")), 0.001)
    state.on_heartbeat(beat(node("b")), 0.002)
    assert state.view.number == number
    assert state.next_at(0.003) <= VIEW_SPACING_S
    actions = state.tick(SOON)
    assert state.view.number == number + 1
    assert ids(state.view) == ["a", "b", "h0"]
    assert sorted(a.to.node_id for a in actions if isinstance(a, PushView)) == ["a", "b"]


def test_a_member_that_is_silent_for_a_ttl_is_removed() -> None:
    state = head()
    state.on_heartbeat(beat(node("a")), 1.0)
    assert state.tick(6.0) == []
    actions = state.tick(6.1)
    assert kinds(actions) == [ViewChanged]
    assert ids(state.view) == ["h0"]


def test_a_member_that_leaves_is_removed_at_once() -> None:
    state = head()
    state.on_heartbeat(beat(node("a")), 1.0)
    assert kinds(state.on_leave("a", 2, 2.0)) == [], "another incarnation cannot sign it off"
    assert kinds(state.on_leave("a", 1, 2.0)) == [ViewChanged]
    assert ids(state.view) == ["h0"]


def test_a_restart_at_the_same_address_replaces_the_old_start_at_once() -> None:
    state = head()
    state.on_heartbeat(beat(node("a", 1)), 1.0)
    answer, _ = state.on_heartbeat(beat(node("a", 2)), 2.0)
    assert answer.verdict is Verdict.ACCEPTED
    assert answer.view is not None and answer.view.has(node("a", 2))
    late, _ = state.on_heartbeat(beat(node("a", 1)), 2.5)
    assert late.verdict is Verdict.WAIT, "a late heartbeat of the old start changes nothing"
    assert state.view.has(node("a", 2))


def test_a_restart_whose_clock_was_set_back_is_accepted_after_a_silence() -> None:
    state = head()
    state.on_heartbeat(beat(node("a", 9)), 1.0)
    assert state.on_heartbeat(beat(node("a", 5)), 2.0)[0].verdict is Verdict.WAIT
    assert state.on_heartbeat(beat(node("a", 5)), 3.0)[0].verdict is Verdict.ACCEPTED
    assert state.view.has(node("a", 5))


def test_one_node_id_at_two_addresses_the_second_is_refused_and_told_of_the_first() -> None:
    state = head()
    state.on_heartbeat(beat(node("a", 1, "first")), 1.0)
    answer, _ = state.on_heartbeat(beat(node("a", 2, "second")), 1.5)
    assert answer.verdict is Verdict.WAIT
    state.on_heartbeat(beat(node("a", 1, "first")), 2.0)
    answer, _ = state.on_heartbeat(beat(node("a", 2, "second")), 2.5)
    assert answer.verdict is Verdict.DUPLICATE
    assert "first:31998" in answer.reason
    assert state.view.has(node("a", 1))


def test_a_node_that_moved_is_accepted_once_its_old_address_is_silent() -> None:
    state = head()
    state.on_heartbeat(beat(node("a", 1, "first")), 1.0)
    assert state.on_heartbeat(beat(node("a", 2, "second")), 1.5)[0].verdict is Verdict.WAIT
    assert state.on_heartbeat(beat(node("a", 2, "second")), 2.5)[0].verdict is Verdict.WAIT
    answer, _ = state.on_heartbeat(beat(node("a", 2, "second")), 3.0)
    assert answer.verdict is Verdict.ACCEPTED
    assert state.view.has(node("a", 2))


def test_the_id_of_the_head_itself_cannot_be_taken() -> None:
    answer, _ = head().on_heartbeat(beat(node("h0", 9, "elsewhere")), 1.0)
    assert answer.verdict is Verdict.DUPLICATE
    assert "host-h0:31998" in answer.reason


def test_the_table_of_a_head_is_bounded() -> None:
    table = HeadTable(node("h0"), TIMING)
    for number in range(MEMBERS_MAX):
        table.heard(node(f"n{number}"), 0.0)
    verdict, reason = table.heard(node("one-more"), 0.0)
    assert verdict is Verdict.WAIT
    assert str(MEMBERS_MAX) in reason


def test_members_known_from_another_heads_view_are_bounded_too() -> None:
    table = HeadTable(node("h0"), TIMING)
    table.seed([node(f"n{number}") for number in range(MEMBERS_MAX + 10)], 0.0)
    assert len(table.living(0.0)) == MEMBERS_MAX + 1, "and the head itself"


# --- a head that restarts


def test_a_head_that_restarts_does_not_throw_the_members_out() -> None:
    state = head(now=100.0)
    answer, _ = state.on_heartbeat(beat(node("a"), view_number=57), 100.5)
    assert answer.verdict is Verdict.ACCEPTED
    assert answer.view is None, "a view without b would throw b out"
    state.on_heartbeat(beat(node("b"), view_number=57), 103.0)
    state.on_heartbeat(beat(node("a"), view_number=57), 104.0)
    assert state.tick(105.4) == []
    assert kinds(state.tick(105.6))[0] is ViewChanged
    assert state.view.number == 58
    assert ids(state.view) == ["a", "b", "h0"]


def test_a_head_that_restarts_beside_another_head_needs_no_grace() -> None:
    state = head("h0", rank=0, heads=2, now=100.0)
    view = View.of(57, "h1", [node("h0", 0), node("h1"), node("a"), node("b")])
    accepted = HeartbeatAnswer(Verdict.ACCEPTED, "", view, "h1")
    state.tick(100.2)
    actions = state.answered(1, accepted, 100.3)
    assert kinds(actions)[0] is ViewChanged
    assert ids(state.view) == ["a", "b", "h0", "h1"]
    assert state.view.has(state.address)
    assert state.view.number > 57


# --- more than one head


def test_two_heads_never_make_different_views_of_one_number() -> None:
    first, second = head("h0", 0, 2), head("h1", 1, 2)
    numbers: list[set[int]] = [set(), set()]
    for step in range(10):
        now = 10.0 + step
        for state, seen in zip((first, second), numbers, strict=True):
            state.on_heartbeat(beat(node("a", step + 1)), now)
            seen.add(state.view.number)
    assert len(numbers[0]) == len(numbers[1]) == 10
    assert not numbers[0] & numbers[1]


def test_the_second_head_acts_only_when_the_first_is_silent_for_a_ttl() -> None:
    state = head("h1", 1, 2)
    state.on_heartbeat(beat(node("a")), 1.0)
    assert not state.acting(4.9)
    assert state.view.number == 0
    state.on_heartbeat(beat(node("a")), 4.0)
    state.tick(5.1)
    assert state.acting(5.1)
    assert ids(state.view) == ["a", "h1"]


def test_the_second_head_goes_on_with_the_firsts_view_when_that_dies() -> None:
    state = head("h1", 1, 2)
    view = View.of(4, "h0", [node("h0"), node("h1"), node("a"), node("b")])
    state.answered(0, HeartbeatAnswer(Verdict.ACCEPTED, "", view, "h0"), 1.0)
    assert state.view == view
    for now in (3.0, 5.0):
        state.on_heartbeat(beat(node("a"), 4), now)
        state.on_heartbeat(beat(node("b"), 4), now)
    state.failed(0, "down", 5.5)
    state.tick(6.1)
    assert ids(state.view) == ["a", "b", "h1"]
    assert state.view.number > 4


def test_after_a_partition_the_first_head_unites_the_members() -> None:
    first = head("h0", 0, 2)
    first.on_heartbeat(beat(node("a")), 10.0)
    foreign = View.of(99, "h1", [node("h1"), node("b")])
    answer, actions = first.on_heartbeat(beat(node("h1"), 99, foreign), 11.0)
    assert kinds(actions)[0] is ViewChanged
    assert ids(first.view) == ["a", "b", "h0", "h1"]
    assert first.view.number > 99
    assert answer.view == first.view


# --- a member


def test_a_member_asks_all_heads_in_parallel() -> None:
    state = member("a", heads=3)
    assert [a.head for a in state.tick(0.0) if isinstance(a, SendHeartbeat)] == [0, 1, 2]
    assert state.tick(0.5) == [], "one heartbeat at a time for each head"


def test_a_hung_head_does_not_delay_the_heartbeats_to_the_others() -> None:
    state = member("a", heads=2)
    state.tick(0.0)
    state.answered(1, HeartbeatAnswer(Verdict.ACCEPTED), 0.1)
    actions = state.tick(1.2)
    assert [a.head for a in actions if isinstance(a, SendHeartbeat)] == [1]
    assert TIMING.call_deadline_s <= TIMING.member_ttl_s / 4


def test_a_member_goes_on_with_its_last_view_when_all_heads_are_gone() -> None:
    state = member("a")
    view = View.of(3, "h0", [node("a"), node("b"), node("h0")])
    state.tick(0.0)
    assert kinds(state.answered(0, HeartbeatAnswer(Verdict.ACCEPTED, "", view), 0.1)) == [
        ViewChanged
    ]
    now = 0.1
    for _ in range(20):
        now = state.next_at(now) + 0.001
        if state.tick(now):
            state.failed(0, "connection refused", now)
    assert state.view == view
    assert state.reachable_heads == 0
    assert state.heads[0].problem == "connection refused"


def test_retries_are_jittered_and_within_a_third_of_the_ttl() -> None:
    state = member("a")
    now, gaps = 0.0, []
    for _ in range(30):
        state.tick(now)
        state.failed(0, "down", now)
        gaps.append(state.heads[0].next_at - now)
        now = state.heads[0].next_at
    assert gaps[0] <= 0.1
    assert max(gaps) <= TIMING.retry_max_s
    assert len({round(gap, 6) for gap in gaps[10:]}) > 10


def test_an_older_view_never_replaces_a_newer_one() -> None:
    state = member("a", heads=2)
    new = View.of(8, "h0", [node("a"), node("h0")])
    old = View.of(7, "h1", [node("a"), node("h1")])
    state.answered(0, HeartbeatAnswer(Verdict.ACCEPTED, "", new), 0.1)
    assert state.answered(1, HeartbeatAnswer(Verdict.ACCEPTED, "", old), 0.2) == []
    assert state.view == new


def test_a_view_without_this_start_of_the_node_is_not_taken() -> None:
    state = member("a", incarnation=2)
    view = View.of(8, "h0", [node("a", 1), node("h0")])
    assert state.answered(0, HeartbeatAnswer(Verdict.ACCEPTED, "", view), 0.1) == []
    assert state.view.number == 0


def test_a_pushed_view_is_taken_by_a_node_that_is_no_head() -> None:
    state = member("a")
    view = View.of(2, "h0", [node("a"), node("h0")])
    answer, actions = state.on_heartbeat(beat(node("h0"), 2, view), 1.0)
    assert answer.verdict is Verdict.NOT_A_HEAD
    assert kinds(actions) == [ViewChanged]


def test_a_duplicate_that_starts_is_refused_with_the_reason() -> None:
    state = member("a")
    state.tick(0.0)
    assert not state.settled
    state.answered(0, HeartbeatAnswer(Verdict.WAIT, "just alive"), 0.1)
    assert not state.settled, "the start waits for the verdict"
    state.tick(1.2)
    actions = state.answered(0, HeartbeatAnswer(Verdict.DUPLICATE, "taken by x:1"), 1.3)
    assert actions == [Refused("taken by x:1")]
    assert state.settled


def test_a_running_node_that_lost_its_id_is_on_its_own_until_it_gets_it_back() -> None:
    state = member("a")
    view = View.of(3, "h0", [node("a"), node("h0")])
    state.answered(0, HeartbeatAnswer(Verdict.ACCEPTED, "", view), 0.1)
    actions = state.answered(0, HeartbeatAnswer(Verdict.DUPLICATE, "taken"), 20.0)
    assert kinds(actions) == [Refused, ViewChanged]
    assert ids(state.view) == ["a"]
    again = replace(view, number=9)
    state.answered(0, HeartbeatAnswer(Verdict.ACCEPTED, "", again), 30.0)
    assert state.view == again
    assert state.refused == ""


def test_of_two_heads_that_disagree_the_first_one_is_right() -> None:
    state = member("a", heads=2)
    state.tick(0.0)
    assert state.answered(1, HeartbeatAnswer(Verdict.DUPLICATE, "taken"), 0.1) == []
    assert state.refused == ""
    state.answered(0, HeartbeatAnswer(Verdict.ACCEPTED), 0.2)
    assert state.refused == ""


def test_a_head_that_is_none_is_reported() -> None:
    state = member("a")
    state.tick(0.0)
    state.answered(0, HeartbeatAnswer(Verdict.NOT_A_HEAD), 0.1)
    assert "discovery_addr" in state.heads[0].problem
    assert state.settled


@pytest.mark.parametrize("number", [0, 1 << 62, (1 << 64) - 1])
def test_absurd_view_numbers_are_ignored(number: int) -> None:
    state = member("a")
    view = View.of(number, "h0", [node("a"), node("h0")])
    assert state.answered(0, HeartbeatAnswer(Verdict.ACCEPTED, "", view), 0.1) == []
    leader = head()
    leader.on_heartbeat(beat(node("b"), view_number=number), 1.0)
    assert leader.view.number < 10
