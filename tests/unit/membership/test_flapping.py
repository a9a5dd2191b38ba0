"""Damping: the waits of flapping nodes, and their length."""

from __future__ import annotations

from math import log2

import pytest

from peercached.membership import Member, NodeAddress, Timing, View
from peercached.membership.ages import Ages
from peercached.membership.flapping import FREE_JOINS, SPARE, Flapping, Joins
from peercached.membership.patience import Patience
from peercached.membership.view import MEMBERS_MAX

TIMING = Timing(1.0, 5.0)
NOW = 1000.0


def member(node_id: str, incarnation: int = 1) -> Member:
    return Member(NodeAddress(node_id, incarnation, node_id, 1, 2))


def flap(flapping: Flapping, times: int, now: float, gap_s: float = 5.0) -> None:
    """The last join is at `now`."""
    view = View.nothing().next([member("a")])
    for number in range(times):
        both = view.next([member("a"), member("x", incarnation=number + 1)])
        flapping.saw(view, both, Ages(), now - (times - 1 - number) * gap_s)
        view = both


def test_first_restarts_are_free_and_later_ones_wait_twice_their_interval() -> None:
    waits = []
    for times in range(int(FREE_JOINS) + 3):
        flapping = Flapping(TIMING, Patience(TIMING))
        flap(flapping, times, NOW)
        waits.append(flapping.wait_s("x", 99, NOW))
    assert waits == [0.0] * int(FREE_JOINS + 1) + [10.0, 10.0]


def stays(flapping: Flapping, incarnation: int, now: float) -> float:
    """Sends one heartbeat a second until the node is admitted. Returns the seconds that took."""
    until = now
    while flapping.wait_s("x", incarnation, until) > 0:
        until += 1.0
        assert until < now + 2 * TIMING.flap_wait_max_s
    return until - now


def test_flapping_node_is_admitted_after_its_bounded_wait() -> None:
    for gap_s, wait_s in ((5.0, 10.0), (20.0, 40.0), (350.0, TIMING.flap_wait_max_s)):
        flapping = Flapping(TIMING, Patience(TIMING))
        flap(flapping, 40, NOW, gap_s)
        assert stays(flapping, 99, NOW + 1.0) == wait_s


def test_restart_or_hang_during_the_wait_starts_it_again() -> None:
    flapping = Flapping(TIMING, Patience(TIMING))
    flap(flapping, 7, NOW)
    now = NOW
    for incarnation in range(10, 60):  # restarts every 8 s of a 10 s wait
        for second in range(8):
            assert flapping.wait_s("x", incarnation, now) == 10.0 - second
            now += 1.0
    for _ in range(50):  # hangs again and again
        assert flapping.wait_s("x", 60, now) == 10.0
        assert flapping.wait_s("x", 60, now + 1.0) == 9.0
        now += 1.0 + TIMING.suspect_after_s
    assert stays(flapping, 60, now) == 10.0, "it waits no longer for having tried so often"


def test_node_returning_after_a_quiet_time_does_not_wait() -> None:
    flapping = Flapping(TIMING, Patience(TIMING))
    flap(flapping, 7, NOW)
    assert flapping.wait_s("x", 99, NOW) == 10.0
    assert flapping.wait_s("x", 100, NOW + 2 * TIMING.flap_half_life_s) == 0.0


def joined_every(gap_s: float, times: int) -> tuple[Joins, float]:
    joins, now = Joins.first(NOW), NOW
    for _ in range(times - 1):
        now += gap_s
        joins = joins.and_one(now, TIMING)
    return joins, now


@pytest.mark.parametrize("gap_s", [30.0, 100.0, 200.0])
def test_regularly_restarting_node_waits_longer_than_its_interval(gap_s: float) -> None:
    joins, now = joined_every(gap_s, 20)
    assert joins.flapping(now + gap_s, TIMING)
    assert joins.wait_s(TIMING) >= SPARE * gap_s * 0.999
    assert joins.wait_s(TIMING) <= TIMING.flap_wait_max_s


def test_flap_gap_follows_the_latest_joins() -> None:
    joins, now = joined_every(1000.0, 5)
    for _ in range(120):
        now += 60.0
        joins = joins.and_one(now, TIMING)
    assert joins.gap_s == pytest.approx(60.0, rel=0.2)


def test_node_stops_flapping_once_its_join_weight_has_decayed() -> None:
    joins, now = joined_every(1.0, 7)
    after_s = TIMING.flap_half_life_s * log2(joins.weight / FREE_JOINS)
    assert joins.flapping(now + after_s - 1.0, TIMING)
    assert not joins.flapping(now + after_s + 1.0, TIMING)


def test_old_joins_do_not_count_for_ever() -> None:
    flapping = Flapping(TIMING, Patience(TIMING))
    for number in range(100):
        flap(flapping, 1, NOW + number * TIMING.flap_half_life_s)
    assert flapping.wait_s("x", 99, NOW + 100 * TIMING.flap_half_life_s) == 0.0


def test_masters_restarting_in_turn_keep_the_flap_history() -> None:
    names, now = "abc", NOW
    knows = {name: Flapping(TIMING, Patience(TIMING)) for name in names}
    view = View.nothing().next([member(name) for name in names])
    for number in range(2, 40):
        restarts = names[number % 3]
        others = [name for name in names if name != restarts]
        after = view.next([member(n, number) if n == restarts else view.by_id[n] for n in names])
        for name in others:
            knows[name].saw(view, after, Ages(), now)
        knows[restarts] = Flapping(TIMING, Patience(TIMING))
        knows[restarts].learn(knows[others[0]].shared(now), now)
        view, now = after, now + 50.0
    for judge in names:
        for name in set(names) - {judge}:
            assert knows[judge].wait_s(name, 99, now) > 0, (judge, name)


def test_own_flap_history_overrides_reported_history() -> None:
    flapping, other = Flapping(TIMING, Patience(TIMING)), Flapping(TIMING, Patience(TIMING))
    flap(flapping, 7, NOW)
    flap(other, 20, NOW, gap_s=20.0)
    flapping.learn(other.shared(NOW), NOW)
    assert flapping.wait_s("x", 99, NOW) == 10.0


def test_flap_history_of_vanished_names_is_bounded() -> None:
    """As with Kubernetes pods: their names change at each restart."""
    flapping = Flapping(TIMING, Patience(TIMING))
    view = View.nothing().next([member("stays")])
    for start in range(1, 4):
        names = [f"pod-{start * MEMBERS_MAX + i}" for i in range(MEMBERS_MAX - 1)]
        members = [member(name) for name in names]
        after = view.next([*members, *view.members[-1:]])
        flapping.saw(view, after, Ages(), float(start))
        view = after
    assert len(flapping._joins) <= MEMBERS_MAX


# --- patience ---------------------------------------------------------------------------------


def returns(flapping: Flapping, times: int, now: float) -> None:
    """The process x is found dead and is a member again, so many times. The last time is `now`."""
    ages, view = Ages(), View.nothing().next([member("a"), member("x")])
    ages.saw(view)
    for number in range(times):
        at = now - (times - 1 - number) * 1.0
        for there in (["a"], ["a", "x"]):
            after = view.next([member(name) for name in there])
            flapping.saw(view, after, ages, at)
            ages.saw(after)
            view = after


def test_a_node_that_was_wrongly_found_dead_has_twice_as_long_and_eight_times_at_most() -> None:
    factors = []
    for times in range(6):
        patience = Patience(TIMING)
        returns(Flapping(TIMING, patience), times, NOW)
        factors.append((patience.times("x", NOW), patience.times("a", NOW)))
    assert [x for x, _ in factors] == pytest.approx([1.0, 2.0, 4.0, 8.0, 8.0, 8.0], rel=0.01)
    assert {a for _, a in factors} == {1.0}


def test_patience_is_forgotten_in_time_and_new_starts_do_not_earn_it() -> None:
    patience = Patience(TIMING)
    flapping = Flapping(TIMING, patience)
    returns(flapping, 3, NOW)
    half = patience.times("x", NOW + TIMING.flap_half_life_s)
    assert half == pytest.approx(2.0**1.5, rel=0.01)
    assert patience.times("x", NOW + 20 * TIMING.flap_half_life_s) == pytest.approx(1.0, abs=1e-5)
    flap(flapping, 3, NOW)
    assert patience.times("x", NOW) == pytest.approx(8.0, rel=0.01)


def test_only_returns_beyond_the_longest_patience_are_joins() -> None:
    for times in (9, 10):
        flapping = Flapping(TIMING, Patience(TIMING))
        returns(flapping, times, NOW)
        assert (flapping.wait_s("x", 1, NOW) > 0) == (times == 10), times


def test_a_wait_goes_on_through_a_silence_that_patience_allows() -> None:
    flapping = Flapping(TIMING, Patience(TIMING))
    returns(flapping, 3, NOW - 5)
    flap(flapping, 7, NOW)
    assert flapping.wait_s("x", 99, NOW) == 10.0
    later = NOW + 2 * TIMING.suspect_after_s
    assert flapping.wait_s("x", 99, later) == 10.0 - 2 * TIMING.suspect_after_s


def test_patience_with_vanished_names_is_bounded() -> None:
    patience = Patience(TIMING)
    for number in range(MEMBERS_MAX + 10):
        patience.was_short(f"pod-{number}", NOW)
    assert len(patience._wrong) == MEMBERS_MAX
