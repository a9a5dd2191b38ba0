"""The ages of members: from what masters have seen, not from what anybody says."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from peercached.membership import (
    Heartbeat,
    Member,
    Membership,
    NodeAddress,
    Timing,
    View,
    ViewUpdate,
)
from peercached.membership.ages import TOLERANCE
from peercached.membership.store import Store
from peercached.membership.view import MARK_BITS

TIMING = Timing(1.0, 5.0)
NOW = 1000.0


def member(node_id: str, incarnation: int = 1, sequence: int = 0) -> Member:
    return Member(NodeAddress(node_id, incarnation, node_id, 1, 2), sequence)


def head(remembered: View | None = None) -> Membership:
    own, rng = member("a").address, random.Random(1)
    return Membership(own, ["a:1"], 0, TIMING, NOW, rng, remembered=remembered)


def beats(node: Membership, at: float, *members: Member, update: ViewUpdate | None = None) -> None:
    for one in members:
        node.on_heartbeat(Heartbeat(one, update.number if update else 0, update), at)
    node.tick(at)


def with_members(*rounds: str) -> tuple[Membership, float]:
    """A head that took in these members, four rounds a second."""
    node, now = head(), NOW
    node.tick(now)
    for names in rounds:
        now += 0.25
        beats(node, now, *map(member, names))
        node.tick(now + 0.2)
    return node, now + 0.2


def forged(view: View, **since: int) -> ViewUpdate:
    counter = (view.number >> MARK_BITS) + 1
    lie = View.numbered(counter, View.of(0, view.members, {**view.since, **since}))
    assert lie.is_what_it_says
    return ViewUpdate.whole(lie)


def test_a_member_is_as_old_as_the_first_view_that_had_it() -> None:
    node, now = with_members("c", "b")
    beats(node, now + 1, member("d", incarnation=0))
    node.tick(now + 2)
    by_age = sorted(node.view.since, key=lambda node_id: node.view.since[node_id])
    assert by_age == ["a", "c", "b", "d"]


def test_a_process_keeps_its_age_over_an_absence_and_a_restart_is_new() -> None:
    node, now = with_members("b", "c")
    before = dict(node.view.since)
    node._roster._bury("b", now)
    node.tick(now + 1)
    assert "b" not in node.view.by_id
    beats(node, now + 2, member("b", sequence=9))
    node.tick(now + 3)
    assert dict(node.view.since) == before
    beats(node, now + 4, member("b", incarnation=2))
    node.tick(now + 5)
    assert node.view.since["b"] == node.view.counter > before["c"]


@pytest.mark.parametrize("since", [{"d": 1}, {"a": 99, "b": 99}])
def test_ages_in_a_made_up_view_are_corrected(
    since: dict[str, int],
) -> None:
    node, now = with_members(*"bcefghd")
    true = dict(node.view.since)
    assert true["d"] - true["b"] > TOLERANCE
    lie = forged(node.view, **since)
    beats(node, now + 1, member("d"), update=lie)
    assert node.latest.number == lie.number
    node.tick(now + 1 + TIMING.member_ttl_s)
    assert node.latest.number > lie.number
    assert dict(node.latest.since) == true


def test_a_restarted_master_has_the_ages_from_the_view_on_disk(tmp_path: Path) -> None:
    node, _ = with_members("b", "c", "d")
    store = Store(str(tmp_path), "a")
    store.save(node.view)
    again = head(store.load())
    again.tick(NOW)
    for endpoint in 3 * sorted(again.endpoints()):
        again.failed(endpoint, "refused", NOW)
    beats(again, NOW + 1, *map(member, "dcb"))
    again.tick(NOW + 2)
    assert {n: again.view.since[n] for n in "bcd"} == {n: node.view.since[n] for n in "bcd"}
