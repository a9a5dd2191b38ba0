"""Signs of life replace heartbeats: when they count, and when they do not."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from peercached.membership import (
    Heartbeat,
    HeartbeatAnswer,
    Member,
    Membership,
    NodeAddress,
    Probe,
    SendBeat,
    Sign,
    State,
    Timing,
    Verdict,
    View,
    ViewUpdate,
)
from peercached.membership.signs import NEVER

TIMING = Timing(1.0, 5.0)
NOW = 1000.0
INCARNATIONS = {"a": 11, "b": 22}


def address(node_id: str) -> NodeAddress:
    return NodeAddress(node_id, INCARNATIONS[node_id], node_id, 1, 2)


VIEW = View.nothing().next([Member(address("a"), head_rank=0), Member(address("b"))])


def membership(node_id: str, rank: int | None = None) -> Membership:
    return Membership(address(node_id), ["a:1"], rank, TIMING, NOW, random.Random(1), 1)


def of(node_id: str, at: float, **other: object) -> Sign:
    sequence = VIEW.by_id[node_id].sequence
    sign = Sign(INCARNATIONS[node_id], VIEW.number, sequence, node_id == "a", at, at)
    return replace(sign, **other)  # type: ignore[arg-type]


class Side:
    """One of the two nodes, with the heartbeats and probes that it sent."""

    def __init__(self, node: Membership) -> None:
        self.node = node
        self.beats: list[float] = []
        self.probes: list[float] = []

    def step(self, now: float, signs: list[Sign]) -> None:
        self.node.hear(signs, now)
        for action in self.node.tick(now):
            if isinstance(action, SendBeat):
                self.beats.append(now)
                answer = HeartbeatAnswer(Verdict.ACCEPTED, responder="a")
                self.node.answered(action.endpoint, answer, now)
            elif isinstance(action, Probe):
                self.probes.append(now)
                self.node.probed(action, False, now)


def member_b() -> Side:
    """Node b. Node a accepts its heartbeats."""
    side = Side(membership("b"))
    accepted = HeartbeatAnswer(Verdict.ACCEPTED, update=ViewUpdate.whole(VIEW), responder="a")
    side.node.tick(NOW)
    side.node.answered("a:1", accepted, NOW)
    assert side.node.latest.number == VIEW.number
    return side


def master_a() -> Side:
    """Master a, with b in its view."""
    side = Side(membership("a", 0))
    side.node.tick(NOW)
    beat = Heartbeat(VIEW.by_id["b"], 0, ViewUpdate.whole(VIEW))
    side.node.on_heartbeat(beat, NOW)
    side.node.tick(NOW)
    assert side.node.is_master(NOW) and side.node.latest.number == VIEW.number
    return side


def times(seconds: float) -> list[float]:
    return [NOW + step / 4 for step in range(1, int(seconds * 4))]


def test_masters_life_signs_reduce_heartbeats_to_one_per_two_ttl() -> None:
    side = member_b()
    for now in times(60):
        side.step(now, [of("a", now)])
    assert 5 <= len(side.beats) <= 7
    assert not side.node.is_master(NOW + 60), "the master has been heard all the time"


@pytest.mark.parametrize(
    "other",
    [
        {"view_number": VIEW.number + 1},
        {"sequence": 1},
        {"is_master": False},
        {"same_epochs": False},
        {"incarnation": 12},
        {"answered_at": NEVER},
    ],
    ids=lambda other: next(iter(other)),
)
def test_life_sign_with_any_difference_replaces_no_heartbeat(other: dict[str, object]) -> None:
    side = member_b()
    for now in times(20):
        side.step(now, [of("a", now, **other)])
    assert len(side.beats) >= 19


@pytest.mark.parametrize("other", [{"same_epochs": False}, {"view_number": VIEW.number + 1}])
def test_news_in_a_sign_brings_the_heartbeat_at_its_ordinary_time(
    other: dict[str, object],
) -> None:
    """It does not wait until the last sign without news has expired."""
    side = member_b()
    for now in times(4):
        side.step(now, [of("a", now)])
    now = times(4)[-1] + 0.01
    side.step(now, [of("a", now, **other)])
    assert side.beats == [now]


def test_heartbeats_go_on_soon_after_the_last_sign() -> None:
    side = member_b()
    for now in times(4):
        side.step(now, [of("a", now)])
    assert not side.beats
    last = times(4)[-1]
    for now in times(8)[15:]:
        side.step(now, [])
    assert side.beats[0] <= last + TIMING.sign_fresh_s + 0.25
    assert len(side.beats) >= 2


def test_member_announces_a_drain_at_once() -> None:
    side = member_b()
    for now in times(3):
        side.step(now, [of("a", now)])
    now = NOW + 3
    actions = side.node.announce_drain(now)
    assert [a.beat.sender.state for a in actions if isinstance(a, SendBeat)] == [State.LEAVING]


def test_a_member_that_no_master_has_accepted_sends_heartbeats() -> None:
    side = Side(membership("b"))
    side.node.tick(NOW)
    waits = HeartbeatAnswer(Verdict.WAIT, "flaps", ViewUpdate.whole(VIEW), responder="a")
    side.node.answered("a:1", waits, NOW)
    side.step(NOW + 1.0, [of("a", NOW + 1.0)])
    assert side.beats == [NOW + 1.0]


def test_a_master_keeps_a_member_that_gives_signs_and_probes_it_not() -> None:
    side = master_a()
    for now in times(12):
        side.step(now, [of("b", now, answered_at=NEVER)])
    assert not side.probes
    assert "b" in side.node.latest.by_id


def test_life_signs_protect_a_member_from_a_duplicate_node_id() -> None:
    side = master_a()
    twin = Member(NodeAddress("b", 33, "elsewhere", 1, 2))
    verdicts = []
    for now in times(12):
        last = NOW + TIMING.sign_wait_s * ((now - NOW) // TIMING.sign_wait_s)
        side.step(now, [of("b", last, answered_at=NEVER)])
        answer, _ = side.node.on_heartbeat(Heartbeat(twin, 0), now)
        verdicts.append(answer.verdict)
    assert Verdict.ACCEPTED not in verdicts
    assert verdicts[-1] is Verdict.DUPLICATE


def test_member_without_life_signs_is_removed() -> None:
    side = master_a()
    for now in times(3):
        side.step(now, [of("b", now)])
    for now in times(12)[12:]:
        side.step(now, [])
    assert side.probes
    assert "b" not in side.node.latest.by_id


def test_life_signs_alone_do_not_keep_a_member() -> None:
    """Other nodes reach its data port, but its control plane does not work."""
    side = master_a()
    until = TIMING.full_beat_s + 2 * TIMING.suspect_after_s + TIMING.member_ttl_s
    for now in times(until):
        side.step(now, [of("b", now)])
    assert "b" not in side.node.latest.by_id


@pytest.mark.parametrize("other", [{"view_number": VIEW.number - 1}, {"sequence": 7}])
def test_a_master_counts_no_signs_of_another_view(other: dict[str, int]) -> None:
    side = master_a()
    for now in times(12):
        side.step(now, [of("b", now, **other)])
    assert "b" not in side.node.latest.by_id


def test_own_sign_carries_the_view_until_the_node_leaves() -> None:
    master, member = master_a().node, member_b().node
    assert master.own_sign(NOW).is_master
    sign = member.own_sign(NOW)
    assert (sign.view_number, sign.is_master) == (VIEW.number, False)
    member.announce_leave(NOW)
    assert member.own_sign(NOW).view_number == 0
    assert membership("b").own_sign(NOW).view_number == 0, "in no view yet"
