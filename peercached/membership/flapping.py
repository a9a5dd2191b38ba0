"""Hysteresis: a flapping node does not re-shard the ring each time it joins.

Each join has a weight that halves every `flap_half_life_s`. A node flaps while its joins weigh
FREE_JOINS or more. A flapping node waits before it is a member again, and serves its own pages
meanwhile. It must stay up for the whole wait. If it restarts or falls silent, the wait begins anew,
and its joins regain the weight they had when the wait began.

A process that was found dead and comes back is no join: the failure detector was too quick, and
has more patience from now on (patience.py). It is a join if patience has reached its bound.

The wait must exceed the node's usual uptime. Otherwise a node that restarts every few minutes would
sit out each wait and join each time. So it is SPARE times the mean time between joins.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from heapq import nsmallest

from peercached.membership.ages import Ages
from peercached.membership.patience import Patience
from peercached.membership.timing import Timing
from peercached.membership.view import MEMBERS_MAX, View

# In joins. Upgrades, crashes and a bad hour are normal: damp only persistent flapping.
FREE_JOINS = 6.0
# Lighter joins (a single one, long ago) are not worth sending to a new node.
WORTH_TELLING = 0.5
# The most that another node is believed.
TOLD_MAX = 2 * FREE_JOINS
# Wait, as a multiple of the mean gap: a fairly regular flapper never stays up that long.
SPARE = 2.0


@dataclass(frozen=True, slots=True)
class Joins:
    """The joins of one node id: their total weight at `weighed_at`, and the mean gap between them.
    The mean weighs each gap like its join, so old gaps count less. Times are monotonic seconds."""

    weight: float
    gap_s: float
    last_at: float
    weighed_at: float

    @staticmethod
    def first(now: float) -> Joins:
        return Joins(1.0, 0.0, now, now)

    def weight_at(self, now: float, timing: Timing) -> float:
        return self.weight * math.pow(2.0, (self.weighed_at - now) / timing.flap_half_life_s)

    def flapping(self, now: float, timing: Timing) -> bool:
        return self.weight_at(now, timing) >= FREE_JOINS

    def and_one(self, now: float, timing: Timing) -> Joins:
        before = self.weight_at(now, timing)
        gap_s = self.gap_s + (now - self.last_at - self.gap_s) / max(before, 1.0)
        return Joins(before + 1.0, gap_s, now, now)

    def held(self, now: float) -> Joins:
        """Cancels the decay since `weighed_at`: the node starts a wait."""
        return replace(self, weighed_at=now)

    def wait_s(self, timing: Timing) -> float:
        """Seconds that a flapping node must stay up before it is a member again."""
        return min(SPARE * self.gap_s, timing.flap_wait_max_s)


@dataclass(frozen=True, slots=True)
class SharedJoins:
    """The Joins of a node id, for a node with another clock."""

    node_id: str
    weight: float  # now
    gap_s: float
    age_s: float  # of the last join


def waits_because(node_id: str, wait_s: float) -> str:
    return (
        f"{node_id} has come and gone too often lately: it is a member again after {wait_s:.0f} s "
        "more without a restart, and takes no sets until then"
    )


@dataclass(slots=True)
class _Waiting:
    incarnation: int
    since: float
    heard: float


class Flapping:
    """Counts joins in the views. Every node does, so that a new master knows them; a node that
    starts gets them with its first view. Not thread safe."""

    def __init__(self, timing: Timing, patience: Patience) -> None:
        self._timing = timing
        self._patience = patience
        self._joins: dict[str, Joins] = {}
        self._waiting: dict[str, _Waiting] = {}  # node ids from _joins

    def saw(self, before: View, after: View, ages: Ages, now: float) -> None:
        """The next view. `ages` has seen the ones before it."""
        if before.number == 0:
            return  # not joins: the others were there before us
        for node_id, member in after.by_id.items():
            known = before.by_id.get(node_id)
            if known is None or known.address.incarnation != member.address.incarnation:
                if ages.has_seen(member) and self._patience.was_short(node_id, now):
                    continue
                joins = self._joins.get(node_id)
                self._joins[node_id] = (
                    joins.and_one(now, self._timing) if joins is not None else Joins.first(now)
                )
                self._waiting.pop(node_id, None)
        self._keep_within_bounds()

    def shared(self, now: float) -> tuple[SharedJoins, ...]:
        """The joins to send to a node that has just started."""
        weights = {n: joins.weight_at(now, self._timing) for n, joins in self._joins.items()}
        return tuple(
            SharedJoins(node_id, weights[node_id], joins.gap_s, now - joins.last_at)
            for node_id, joins in self._joins.items()
            if weights[node_id] >= WORTH_TELLING
        )

    def learn(self, told: Iterable[SharedJoins], now: float) -> None:
        """Keeps what this node counted itself; adds joins of other node ids. A member may lie: no
        node waits for longer than a flapping one does."""
        for one in told:
            weight, gap_s = min(one.weight, TOLD_MAX), min(one.gap_s, self._timing.flap_wait_max_s)
            joins = Joins(weight, gap_s, now - one.age_s, now)
            self._joins.setdefault(one.node_id, joins)
        self._keep_within_bounds()

    def _keep_within_bounds(self) -> None:
        too_many = len(self._joins) - MEMBERS_MAX
        for oldest in nsmallest(too_many, self._joins, lambda n: self._joins[n].weighed_at):
            del self._joins[oldest]
            self._waiting.pop(oldest, None)

    def wait_s(self, node_id: str, incarnation: int, now: float) -> float:
        """The node asks to join: seconds that it must still wait; 0: it may join now."""
        joins = self._joins.get(node_id)
        if joins is None:
            return 0.0
        waiting = self._waiting.get(node_id)
        if (
            waiting is None
            or waiting.incarnation != incarnation
            or now - waiting.heard
            >= self._timing.suspect_after_s * self._patience.times(node_id, now)
        ):
            if not joins.flapping(now, self._timing):
                self._waiting.pop(node_id, None)
                return 0.0
            joins = self._joins[node_id] = joins.held(now)
            waiting = self._waiting[node_id] = _Waiting(incarnation, now, now)
        waiting.heard = now
        return max(waiting.since + joins.wait_s(self._timing) - now, 0.0)
