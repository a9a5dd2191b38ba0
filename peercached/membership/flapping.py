"""Hysteresis: a node that comes and goes does not re-shard the ring each time.

Every join is remembered with a weight that halves every `flap_half_life_s`. FREE_JOINS of them make
a node a flapping one, until less than STEADY is left of them (RFC 2439 damps routes so, with these
two thresholds). A flapping node that comes waits before it is a member again, and serves its own
pages meanwhile. It has to be there for all of its wait: if it restarts or falls silent, the wait
begins anew, and its joins weigh what they did.

The wait is longer than the node usually lasts, or one that restarts every few minutes would serve
it each time: SPARE times the mean time from join to join, and at least a TTL that doubles with
each join above those that are free.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from heapq import nsmallest

from peercached.membership.timing import Timing
from peercached.membership.view import MEMBERS_MAX, View

# Upgrades, crashes and a bad hour are normal: only what goes on is damped.
FREE_JOINS = 6.0
STEADY = 2.0
# Below this nobody need be told of a node's joins: one of them, long ago.
WORTH_TELLING = 0.5
# Of the mean gap: one that goes with some regularity does not last as long.
SPARE = 2.0
DOUBLINGS_MAX = 16.0


@dataclass(frozen=True, slots=True)
class Joins:
    """Of one node id, so far: what they weighed at `weighed_at`, and the mean time from one to
    the next, in which an old gap counts as little as its join."""

    weight: float
    gap_s: float
    last_at: float
    weighed_at: float
    many: bool = False

    @staticmethod
    def first(now: float) -> Joins:
        return Joins(1.0, 0.0, now, now)

    def weight_at(self, now: float, timing: Timing) -> float:
        return self.weight * math.pow(2.0, (self.weighed_at - now) / timing.flap_half_life_s)

    def flapping(self, now: float, timing: Timing) -> bool:
        return self.many and self.weight_at(now, timing) >= STEADY

    def and_one(self, now: float, timing: Timing) -> Joins:
        before = self.weight_at(now, timing)
        gap_s = self.gap_s + (now - self.last_at - self.gap_s) / max(before, 1.0)
        many = self.flapping(now, timing) or before + 1.0 >= FREE_JOINS
        return Joins(before + 1.0, gap_s, now, now, many)

    def held(self, now: float) -> Joins:
        """It has come and has to wait: they weigh what they did."""
        return replace(self, weighed_at=now)

    def wait_s(self, timing: Timing) -> float:
        """How long a flapping node has to stay before it is a member again."""
        doublings = min(max(self.weight - FREE_JOINS, 0.0), DOUBLINGS_MAX)
        least_s = timing.member_ttl_s * math.pow(2.0, doublings)
        return min(max(least_s, SPARE * self.gap_s), timing.flap_wait_max_s)


@dataclass(frozen=True, slots=True)
class JoinsTold:
    """The Joins of a node id, for somebody with another clock."""

    node_id: str
    weight: float  # now
    gap_s: float
    age_s: float  # of the last one
    many: bool = False


def waits_because(node_id: str, wait_s: float) -> str:
    return (
        f"{node_id} has come and gone too often lately: it is a member again when it has "
        f"stayed for {wait_s:.0f} s more, and takes no sets until then"
    )


@dataclass(slots=True)
class _Waiting:
    incarnation: int
    since: float
    heard: float


class Flapping:
    """Every node keeps it, from the views, so that a new master knows. Who starts is told of it
    with its first view. Not thread safe."""

    def __init__(self, timing: Timing) -> None:
        self._timing = timing
        self._joins: dict[str, Joins] = {}
        self._waiting: dict[str, _Waiting] = {}  # of those in _joins

    def saw(self, before: View, after: View, now: float) -> None:
        if before.number == 0:
            return  # these have been there; we are the new one
        for node_id, member in after.by_id.items():
            known = before.by_id.get(node_id)
            if known is None or known.address.incarnation != member.address.incarnation:
                joins = self._joins.get(node_id)
                self._joins[node_id] = (
                    joins.and_one(now, self._timing) if joins is not None else Joins.first(now)
                )
                self._waiting.pop(node_id, None)
        self._keep_within_bounds()

    def told(self, now: float) -> tuple[JoinsTold, ...]:
        """For a node that has just started."""
        weights = {n: joins.weight_at(now, self._timing) for n, joins in self._joins.items()}
        return tuple(
            JoinsTold(node_id, weights[node_id], joins.gap_s, now - joins.last_at, joins.many)
            for node_id, joins in self._joins.items()
            if weights[node_id] >= WORTH_TELLING
        )

    def learn(self, told: Iterable[JoinsTold], now: float) -> None:
        """Of nodes of which nothing is known here."""
        for one in told:
            joins = Joins(one.weight, one.gap_s, now - one.age_s, now, one.many)
            self._joins.setdefault(one.node_id, joins)
        self._keep_within_bounds()

    def _keep_within_bounds(self) -> None:
        too_many = len(self._joins) - MEMBERS_MAX
        for oldest in nsmallest(too_many, self._joins, lambda n: self._joins[n].weighed_at):
            del self._joins[oldest]
            self._waiting.pop(oldest, None)

    def wait_s(self, node_id: str, incarnation: int, now: float) -> float:
        """It would like to be a member, now: how long it has to wait still; 0 if it may join."""
        joins = self._joins.get(node_id)
        if joins is None:
            return 0.0
        waiting = self._waiting.get(node_id)
        if (
            waiting is None
            or waiting.incarnation != incarnation
            or now - waiting.heard >= self._timing.suspect_after_s
        ):
            if not joins.flapping(now, self._timing):
                self._waiting.pop(node_id, None)
                return 0.0
            joins = self._joins[node_id] = joins.held(now)
            waiting = self._waiting[node_id] = _Waiting(incarnation, now, now)
        waiting.heard = now
        return max(waiting.since + joins.wait_s(self._timing) - now, 0.0)
