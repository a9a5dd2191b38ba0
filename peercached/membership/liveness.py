"""A master's failure detector (SWIM, Das et al. 2002).

The master probes a silent member directly, and through other members, so that one broken link
decides nothing. One answer keeps the member alive. The member is dead when its TTL is over (longer
if it was found dead before and lived, patience.py) and a whole round of probes since it fell silent
got no answer.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from peercached.membership.patience import Patience
from peercached.membership.timing import Timing
from peercached.membership.view import Member, NodeAddress

# A round ends after this many call deadlines even if answers are lost: an indirect probe needs two.
ROUND_DEADLINES = 3.0


@dataclass(slots=True)
class _Watched:
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

    def __init__(self, timing: Timing, patience: Patience) -> None:
        self._timing = timing
        self._patience = patience
        self._watched: dict[str, _Watched] = {}
        self._rounds = 0

    def watch(self, members: Iterable[Member], own_id: str, now: float) -> None:
        """Watches exactly these members from now on. A new one gets a whole TTL."""
        now_watched: dict[str, _Watched] = {}
        for member in members:
            node_id = member.node_id
            watched = self._watched.get(node_id)
            if node_id == own_id:
                continue
            if watched is None or watched.incarnation != member.address.incarnation:
                watched = self._new(member.address.incarnation, now)
                watched.direct = float("-inf")
            now_watched[node_id] = watched
        self._watched = now_watched

    def _new(self, incarnation: int, now: float) -> _Watched:
        return _Watched(incarnation, now, now, now, now + self._timing.suspect_after_s)

    def heard(self, node_id: str, incarnation: int, now: float) -> None:
        """A heartbeat of a member has come."""
        watched = self._watched.get(node_id)
        if watched is None or watched.incarnation != incarnation:
            self._watched[node_id] = self._new(incarnation, now)
            return
        watched.beat = now
        self._heard(watched, now)

    def gave_sign(self, node_id: str, incarnation: int, at: float) -> None:
        """A sign of life of a member has come (signs.py). Ignored if its last heartbeat is too old:
        signs prove only the data port, not the control plane."""
        watched = self._watched.get(node_id)
        if watched is None or watched.incarnation != incarnation or at <= watched.direct:
            return
        if at - watched.beat <= self._timing.full_beat_s + self._timing.suspect_after_s:
            self._heard(watched, at)

    def _heard(self, watched: _Watched, at: float) -> None:
        watched.direct = at
        if watched.in_vain:
            self.ask_again(at)
        if at >= watched.heard:
            self._alive(watched, at)

    def _alive(self, watched: _Watched, now: float) -> None:
        watched.heard = now
        watched.next_round = now + self._timing.suspect_after_s
        watched.round = watched.open = 0
        watched.in_vain = False
        watched.asked_again = False

    def ask_again(self, now: float) -> None:
        """An unreachable member is back, so probably a network is. Every other unreachable member
        gets one more round of probes, and only one, before it is dead."""
        for watched in self._watched.values():
            if watched.in_vain and not watched.asked_again:
                watched.in_vain, watched.asked_again = False, True
                watched.round = watched.open = 0  # a round in progress began too early
                watched.next_round = now

    def hears(self, node: NodeAddress, within_s: float, now: float) -> bool:
        """Whether a direct heartbeat or sign of that very process came within that time."""
        watched = self._watched.get(node.node_id)
        return (
            watched is not None
            and watched.incarnation == node.incarnation
            and now - watched.direct < within_s
        )

    def forgive(self, pause_s: float, now: float) -> None:
        """Our own process was stopped for `pause_s`: do not count that as silence of others. Our
        connections may be broken, too, so the first round of probes may be in vain: nobody is dead
        before there was time for a second one."""
        for watched in self._watched.values():
            watched.heard = max(watched.heard + pause_s, now - self._timing.suspect_after_s)
            watched.direct += pause_s
            watched.beat += pause_s
            watched.next_round += pause_s
            watched.ends += pause_s

    def due(self, now: float, patience_s: float) -> list[str]:
        """Node ids to probe now, the longest wait first. So if the caller probes only some of them,
        all get their turn. Call begin() for each one probed."""
        late = now - patience_s
        found: list[tuple[float, str]] = []
        for node_id, watched in self._watched.items():
            if watched.open and now >= watched.ends:
                watched.open = 0
                watched.in_vain = True
            if not watched.open and late >= watched.next_round:
                found.append((watched.next_round, node_id))
        return [node_id for _, node_id in sorted(found)]

    def next_at(self) -> float:
        """The earliest time when due() or dead() may return more."""
        return min((self._next_at_of(*one) for one in self._watched.items()), default=float("inf"))

    def _next_at_of(self, node_id: str, watched: _Watched) -> float:
        at = watched.ends if watched.open else watched.next_round
        return min(at, self._dead_at(node_id, watched, at)) if watched.in_vain else at

    def begin(self, node_id: str, probes: int, now: float) -> int:
        """Starts a round of so many probes. Returns its number, for probed()."""
        watched = self._watched[node_id]
        self._rounds += 1
        watched.round, watched.open = self._rounds, probes
        watched.ends = now + ROUND_DEADLINES * self._timing.call_deadline_s
        watched.next_round = now + self._timing.call_deadline_s
        return watched.round

    def probed(self, node_id: str, number: int, alive: bool, now: float) -> None:
        watched = self._watched.get(node_id)
        if watched is None or watched.round != number or not watched.open:
            return
        if alive:
            self._alive(watched, now)
            return
        watched.open -= 1
        if not watched.open:
            watched.in_vain = True

    def dead(self, now: float) -> list[str]:
        return [
            n for n, watched in self._watched.items()
            if watched.in_vain and self._dead_at(n, watched, now) <= now
        ]  # fmt: skip

    def _dead_at(self, node_id: str, watched: _Watched, now: float) -> float:
        return watched.heard + self._timing.member_ttl_s * self._patience.times(node_id, now)

    def suspects(self) -> list[str]:
        return [n for n, watched in self._watched.items() if watched.open or watched.in_vain]

    def silence_s(self, now: float) -> dict[str, float]:
        return {n: now - watched.heard for n, watched in self._watched.items()}

    def last_heard(self, node_id: str) -> float:
        watched = self._watched.get(node_id)
        return float("-inf") if watched is None else watched.heard
