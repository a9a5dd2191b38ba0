"""Which members a master has heard, whom it suspects, and who is dead.

A member that is silent for a while is probed: by this master and, so that one cut line does not
decide, through other members. One answer is enough to live on; it is dead when its TTL is over
and a whole round of probes since it became suspect found nobody.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from peercached.membership.timing import Timing
from peercached.membership.view import Member

# A round whose answers are lost ends by itself: call deadlines of the prober and of the probed.
ROUND_DEADLINES = 3.0
# Of the silence after which a member is probed: a heartbeat that is no older is as good as a ping.
JUST_HEARD = 0.5


@dataclass(slots=True)
class _Life:
    incarnation: int
    heard: float  # the last sign of life, its own or vouched for
    direct: float  # its last heartbeat or sign here
    beat: float  # its last heartbeat here
    next_round: float
    round: int = 0
    open: int = 0  # probes of this round that may still answer
    ends: float = 0.0
    in_vain: bool = False  # a whole round since `heard`
    asked_again: bool = False  # since `heard`


class Liveness:
    """Not thread safe; `now` is monotonic seconds."""

    def __init__(self, timing: Timing) -> None:
        self._timing = timing
        self._lives: dict[str, _Life] = {}
        self._rounds = 0

    def watch(self, members: Iterable[Member], own_id: str, now: float) -> None:
        """Exactly these from now on; whom we did not know gets a whole TTL."""
        lives: dict[str, _Life] = {}
        for member in members:
            node_id = member.address.node_id
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
        """A heartbeat of a member."""
        life = self._lives.get(node_id)
        if life is None or life.incarnation != incarnation:
            self._lives[node_id] = self._new(incarnation, now)
            return
        life.beat = now
        self._heard(life, now)

    def gave_sign(self, node_id: str, incarnation: int, at: float) -> None:
        """A sign of a member (signs.py)."""
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
        """One is back whom nobody reached: very likely a network is. The others get a round of
        probes over that before they are dead, and no more than one."""
        for life in self._lives.values():
            if life.in_vain and not life.asked_again:
                life.in_vain, life.asked_again = False, True
                life.round = life.open = 0  # one that is under way began before
                life.next_round = now

    def hears(self, node_id: str, incarnation: int, now: float) -> bool:
        """We have it from itself that it lives."""
        life = self._lives.get(node_id)
        return (
            life is not None
            and life.incarnation == incarnation
            and now - life.direct < self._timing.suspect_after_s
        )

    def just_heard(self, node_id: str, incarnation: int, now: float) -> bool:
        """It lives so surely that it need not be asked: whoever heard it last when we did does
        not suspect it yet."""
        life = self._lives.get(node_id)
        return (
            life is not None
            and life.incarnation == incarnation
            and now - life.direct < JUST_HEARD * self._timing.suspect_after_s
        )

    def forgive(self, pause_s: float) -> None:
        """We were stopped for so long: nobody could be heard."""
        for life in self._lives.values():
            life.heard += pause_s
            life.direct += pause_s
            life.beat += pause_s
            life.next_round += pause_s
            life.ends += pause_s

    def due(self, now: float, patience_s: float) -> list[str]:
        """Whom to probe now, who has waited longest first: when there are too many for one look,
        everybody gets his turn. Whoever is probed is to be followed by begin()."""
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
        """When due() or dead() may have something to say at the earliest."""
        return min(map(self._life_next_at, self._lives.values()), default=float("inf"))

    def _life_next_at(self, life: _Life) -> float:
        at = life.ends if life.open else life.next_round
        return min(at, life.heard + self._timing.member_ttl_s) if life.in_vain else at

    def begin(self, node_id: str, probes: int, now: float) -> int:
        """The number of the round, for answered() and silent()."""
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
