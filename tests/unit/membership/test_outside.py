"""A node that is in no view yet: what it knows of its cluster, and for how long."""

from __future__ import annotations

import random

import pytest

from peercached.membership import (
    Heartbeat,
    HeartbeatAnswer,
    Member,
    NodeAddress,
    Timing,
    Verdict,
    View,
)
from peercached.membership.links import TRIES
from peercached.membership.membership import Membership

TIMING = Timing(1.0, 5.0)
NOW = 1000.0
REASON = "x has come and gone too often lately"


def node(heads: list[str], rank: int | None = None, name: str = "x") -> Membership:
    address = NodeAddress(name, 1, name, 1, 2)
    return Membership(address, heads, rank, TIMING, NOW, random.Random(1))


@pytest.mark.parametrize("verdict", [Verdict.WAIT, Verdict.ACCEPTED, Verdict.DUPLICATE])
def test_a_few_late_answers_do_not_make_a_node_believe_it_is_alone(verdict: Verdict) -> None:
    """On a busy machine an answer may miss its time. A node that thinks it is alone takes sets and
    confirms removals that no member has heard of."""
    x = node(["a:1"])
    x.tick(NOW)
    x.answered("a:1", HeartbeatAnswer(verdict, REASON, responder="a"), NOW)
    for _ in range(TRIES - 1):
        assert x.waits == REASON
        x.failed("a:1", "late", NOW)
    assert x.waits == REASON
    x.failed("a:1", "late", NOW)
    assert not x.waits, "its master may be gone"


def test_a_head_begins_no_cluster_while_another_that_keeps_it_out_is_late() -> None:
    x = node(["x:1", "a:1"], 0)
    x.tick(NOW)
    x.answered("a:1", HeartbeatAnswer(Verdict.WAIT, REASON, responder="a"), NOW)
    x.failed("a:1", "late", NOW)
    x.tick(NOW + 10 * TIMING.call_deadline_s)
    assert x.view.number == 0
    assert not x.is_master(NOW + 10 * TIMING.call_deadline_s)


def test_a_former_master_waits_for_each_of_the_others_before_it_begins_a_cluster() -> None:
    others = [Member(NodeAddress(name, 1, name, 1, 2)) for name in ("a", "b")]
    address = NodeAddress("x", 2, "x", 1, 2)
    then = View.numbered(7, View.of(0, [*others, Member(address)]))
    x = Membership(address, ["a:1"], None, TIMING, NOW, random.Random(1), remembered=then)
    now = NOW
    for number in range(TRIES):
        now += 10 * TIMING.call_deadline_s
        x.tick(now)
        assert x.view.number == 0
        x.failed("a:1", "late", now)
        if number < TRIES - 1:
            x.failed("b:1", "late", now)
    now += 10 * TIMING.call_deadline_s
    x.tick(now)
    assert x.outside, "b has had no third attempt yet"
    x.failed("b:1", "late", now)
    x.tick(now)
    assert not x.outside


def test_a_node_is_outside_until_its_first_view_unless_it_has_no_heads() -> None:
    assert not node([]).outside
    x, head = node(["a:1"]), node(["a:1"], 0, "a")
    assert x.outside
    assert head.outside
    head.tick(NOW)
    answer, _ = head.on_heartbeat(Heartbeat(Member(x.address), 0), NOW)
    x.answered("a:1", answer, NOW)
    now = NOW + 1.0
    head.tick(now)
    x.tick(now)
    answer, _ = head.on_heartbeat(Heartbeat(x.own, x.latest.number), now)
    x.answered("a:1", answer, now)
    assert not head.outside
    assert not x.outside
