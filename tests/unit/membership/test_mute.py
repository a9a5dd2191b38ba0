"""A member that sends heartbeats and answers no call is put out; others never are."""

from __future__ import annotations

import random
from collections.abc import Callable

from peercached.membership import (
    Action,
    Heartbeat,
    Member,
    Membership,
    NodeAddress,
    Probe,
    Timing,
    Verdict,
)
from peercached.membership.mute import Mute
from peercached.membership.roster import Roster
from peercached.membership.view import Gone, State

TIMING = Timing(1.0, 5.0)
NOW = 1000.0


def member(node_id: str, sequence: int = 0) -> Member:
    return Member(NodeAddress(node_id, 1, node_id, 1, 2), sequence)


class Suspects:
    def __init__(self, has: Callable[[str], bool]) -> None:
        self._has = has

    def __contains__(self, address: object) -> bool:
        return isinstance(address, NodeAddress) and self._has(address.node_id)


class Master:
    """A head with members that send heartbeats. `reached` by its own calls, `vouched` by others."""

    def __init__(self, *members: str) -> None:
        self.members = dict.fromkeys(members, 0)
        self.reached, self.vouched = set(members), set[str]()
        own = member("a").address
        self.node = Membership(
            own, ["a:1"], 0, TIMING, NOW, random.Random(1),
            suspected=Suspects(lambda name: name not in self.reached),
        )  # fmt: skip
        self.now = NOW
        self.verdicts: dict[str, Verdict] = {}
        self.run(2.0)
        assert self.inside() == set(members)

    def inside(self) -> set[str]:
        return {m.node_id for m in self.node.latest.members} - {"a"}

    def run(self, seconds: float) -> None:
        until = self.now + seconds
        while self.now < until:
            self.now += 0.25
            for name, sequence in self.members.items():
                beat = Heartbeat(member(name, sequence), 0)
                answer, actions = self.node.on_heartbeat(beat, self.now)
                self.verdicts[name] = answer.verdict
                if answer.accused:
                    self.members[name] = answer.accused + 1
                self._probe(actions)
            self._probe(self.node.tick(self.now))

    def _probe(self, actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, Probe):
                reached = self.reached if action.via is None else self.vouched
                assert action.via is None or action.via.node_id in self.reached
                alive = action.target.node_id in reached
                self._probe(self.node.probed(action, alive, self.now))


def test_a_mute_member_is_put_out_and_let_in_again_once_it_answers() -> None:
    master = Master("b", "c", "d")
    master.reached.remove("d")
    master.run(TIMING.mute_after_s)
    assert master.inside() == {"b", "c", "d"}, "a busy daemon gets its time"
    master.run(2 * TIMING.member_ttl_s)
    assert master.inside() == {"b", "c"}
    assert [address.node_id for address in master.node.mute(master.now)] == ["d"]
    master.run(10 * TIMING.member_ttl_s)
    assert master.verdicts["d"] is Verdict.WAIT
    assert master.inside() == {"b", "c"}
    master.reached.add("d")
    master.run(2.0)
    assert master.inside() == {"b", "c", "d"}
    assert master.node.mute(master.now) == []


def test_a_member_that_is_killed_soon_after_a_failed_call_is_not_mute() -> None:
    """Its death may be found before its last sign of life is as old as a TTL."""
    killed = member("d").address
    mute = Mute(TIMING, {killed})
    for now in (NOW, NOW + 0.5):
        assert not mute.is_mute(killed, now)
    assert not mute.died("d", NOW + 0.9 * TIMING.member_ttl_s)
    assert not mute.out(NOW + TIMING.member_ttl_s)


def test_a_member_that_only_this_master_does_not_reach_stays() -> None:
    master = Master("b", "c", "d")
    master.reached.remove("d")
    master.vouched.add("d")
    master.run(20 * TIMING.member_ttl_s)
    assert master.inside() == {"b", "c", "d"}


def test_a_master_that_reaches_nobody_puts_nobody_out() -> None:
    master = Master("b", "c", "d")
    master.reached.clear()
    master.run(20 * TIMING.member_ttl_s)
    assert master.inside() == {"b", "c", "d"}


def test_a_member_that_hangs_and_beats_again_is_back_at_once() -> None:
    master = Master("b", "c", "d")
    del master.members["d"]
    master.reached.remove("d")
    master.run(3 * TIMING.member_ttl_s)
    assert master.inside() == {"b", "c"}
    master.members["d"] = 0
    master.run(1.0)
    assert master.inside() == {"b", "c", "d"}


def test_a_master_that_is_told_of_the_death_of_a_mute_member_keeps_it_out_too() -> None:
    roster = Roster("a", TIMING, random.Random(1), Suspects(lambda name: name == "d"))
    now = NOW
    for name in "bd":
        roster.merge([member(name)], [], now)
    while now < NOW + TIMING.mute_after_s + TIMING.member_ttl_s:
        now += 0.25
        assert roster.heard(member("d"), now)[0] is Verdict.ACCEPTED
    roster.merge([], [Gone("d", 1, 0, State.DEAD)], now)
    assert [address.node_id for address in roster.mute.out(now)] == ["d"]
    assert roster.heard(member("d", 1), now + 0.25)[0] is Verdict.WAIT
