"""A master's failure detector (SWIM, Das et al. 2002).

The master probes a silent member directly, and through other members, so that one broken link
decides nothing. One answer keeps the member alive. The member is dead when its TTL is over and a
whole round of probes since it fell silent got no answer.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from peercached.membership.timing import Timing
from peercached.membership.view import Member, NodeAddress

# A round ends after this many call deadlines even if answers are lost: an indirect probe needs two.
ROUND_DEADLINES = 3.0


@dataclass(slots=True)
class _Life:
    incarnation: int
    heard: float  # last evidence of life: direct, or an answered probe
    direct: float  # last heartbeat or sign that we received from it
    beat: float  # last heartbeat that we received from it
    next_round: float
    round: int = 0
    open: int = 0  # probes of this round without an answer yet
    ends: float = 0.0
    in_vain: bool = False  # a whole round since `heard` got no answer
    asked_again: bool = False  # ask_again() since `heard`


class Liveness:
    """Not thread safe; `now` is monotonic seconds."""

    def __init__(self, timing: Timing) -> None:
        self._timing = timing
        self._lives: dict[str, _Life] = {}
        self._rounds = 0

    def watch(self, members: Iterable[Member], own_id: str, now: float) -> None:
        """Watches exactly these members from now on. A new one gets a whole TTL."""
        lives: dict[str, _Life] = {}
        for member in members:
            node_id = member.node_id
            life = self._lives.get(node_id)
            if node_id == own_id:
                continue
            if life is None or life.incarnation != member.address.incarnation:
                life = self._new(member.address.incarnation, now)
                life.direct = float("-inf")
            lives[node_id] = life
        self._lives = lives

    def _new(self, incarnation: int, now: float) -> _Life:
        return _Life(incarnation, now, now, now, now + self._timing.suspect_after_s)

    def heard(self, node_id: str, incarnation: int, now: float) -> None:
        """A heartbeat of a member has come."""
        life = self._lives.get(node_id)
        if life is None or life.incarnation != incarnation:
            self._lives[node_id] = self._new(incarnation, now)
            return
        life.beat = now
        self._heard(life, now)

    def gave_sign(self, node_id: str, incarnation: int, at: float) -> None:
        """A sign of life of a member has come (signs.py). Ignored if its last heartbeat is too old:
        signs prove only the data port, not the control plane."""
        life = self._lives.get(node_id)
        if life is None or life.incarnation != incarnation or at <= life.direct:
            return
        if at - life.beat <= self._timing.full_beat_s + self._timing.suspect_after_s:
            self._heard(life, at)

    def _heard(self, life: _Life, at: float) -> None:
        life.direct = at
        if life.in_vain:
            self.ask_again(at)
        if at >= life.heard:
            self._alive(life, at)

    def _alive(self, life: _Life, now: float) -> None:
        life.heard = now
        life.next_round = now + self._timing.suspect_after_s
        life.round = life.open = 0
        life.in_vain = False
        life.asked_again = False

    def ask_again(self, now: float) -> None:
        """An unreachable member is back, so probably a network is. Every other unreachable member
        gets one more round of probes, and only one, before it is dead."""
        for life in self._lives.values():
            if life.in_vain and not life.asked_again:
                life.in_vain, life.asked_again = False, True
                life.round = life.open = 0  # a round in progress began too early
                life.next_round = now

    def hears(self, node: NodeAddress, within_s: float, now: float) -> bool:
        """Whether a direct heartbeat or sign of that very process came within that time."""
        life = self._lives.get(node.node_id)
        return (
            life is not None
            and life.incarnation == node.incarnation
            and now - life.direct < within_s
        )

    def forgive(self, pause_s: float, now: float) -> None:
        """Our own process was stopped for `pause_s`: do not count that as silence of others. Our
        connections may be broken, too, so the first round of probes may be in vain: nobody is dead
        before there was time for a second one."""
        for life in self._lives.values():
            life.heard = max(life.heard + pause_s, now - self._timing.suspect_after_s)
            life.direct += pause_s
            life.beat += pause_s
            life.next_round += pause_s
            life.ends += pause_s

    def due(self, now: float, patience_s: float) -> list[str]:
        """Node ids to probe now, the longest wait first. So if the caller probes only some of them,
        all get their turn. Call begin() for each one probed."""
        late = now - patience_s
        found: list[tuple[float, str]] = []
        for node_id, life in self._lives.items():
            if life.open and now >= life.ends:
                life.open = 0
                life.in_vain = True
            if not life.open and late >= life.next_round:
                found.append((life.next_round, node_id))
        return [node_id for _, node_id in sorted(found)]

    def next_at(self) -> float:
        """The earliest time when due() or dead() may return more."""
        return min(map(self._life_next_at, self._lives.values()), default=float("inf"))

    def _life_next_at(self, life: _Life) -> float:
        at = life.ends if life.open else life.next_round
        return min(at, life.heard + self._timing.member_ttl_s) if life.in_vain else at

    def begin(self, node_id: str, probes: int, now: float) -> int:
        """Starts a round of so many probes. Returns its number, for probed()."""
        life = self._lives[node_id]
        self._rounds += 1
        life.round, life.open = self._rounds, probes
        life.ends = now + ROUND_DEADLINES * self._timing.call_deadline_s
        life.next_round = now + self._timing.call_deadline_s
        return life.round

    def probed(self, node_id: str, number: int, alive: bool, now: float) -> None:
        life = self._lives.get(node_id)
        if life is None or life.round != number or not life.open:
            return
        if alive:
            self._alive(life, now)
            return
        life.open -= 1
        if not life.open:
            life.in_vain = True

    def dead(self, now: float) -> list[str]:
        oldest = now - self._timing.member_ttl_s
        return [n for n, life in self._lives.items() if life.in_vain and life.heard <= oldest]

    def suspects(self) -> list[str]:
        return [n for n, life in self._lives.items() if life.open or life.in_vain]

    def silence_s(self, now: float) -> dict[str, float]:
        return {n: now - life.heard for n, life in self._lives.items()}

    def last_heard(self, node_id: str) -> float:
        life = self._lives.get(node_id)
        return float("-inf") if life is None else life.heard
