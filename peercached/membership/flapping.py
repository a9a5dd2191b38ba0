"""Hysteresis: a node that comes and goes does not re-shard the ring each time.

Every join is remembered with a weight that halves every `flap_half_life_s` (as route flap
damping does it, RFC 2439). A node that comes with FREE_JOINS of them waits before it is a member
again, twice as long with each further one, and serves its own pages meanwhile. It has to be there
for all of its wait: if it restarts or falls silent, the wait begins anew, and its joins weigh what
they did. So one that never lasts as long stays out, and one that stays is let in.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from peercached.membership.timing import Timing
from peercached.membership.view import MEMBERS_MAX, View

# Upgrades, crashes and a bad hour are normal: only what goes on is damped.
FREE_JOINS = 6.0


@dataclass(slots=True)
class _Joins:
    weight: float
    at: float  # of the last one, or when it last came and had to wait
    waiting: int = 0  # the incarnation that has to
    heard: float = float("-inf")  # while it waits


class Flapping:
    """Every node keeps it, from the views, so that a new master knows. Not thread safe."""

    def __init__(self, timing: Timing) -> None:
        self._timing = timing
        self._joins: dict[str, _Joins] = {}

    def saw(self, before: View, after: View, now: float) -> None:
        if before.number == 0:
            return  # these have been there; we are the new one
        for node_id, member in after.by_id.items():
            known = before.by_id.get(node_id)
            if known is None or known.address.incarnation != member.address.incarnation:
                self._joins[node_id] = _Joins(self._weight(node_id, now) + 1.0, now)
        if len(self._joins) > MEMBERS_MAX:
            del self._joins[min(self._joins, key=lambda n: self._joins[n].at)]

    def _weight(self, node_id: str, now: float) -> float:
        joins = self._joins.get(node_id)
        if joins is None:
            return 0.0
        halvings = (now - joins.at) / self._timing.flap_half_life_s
        return joins.weight * math.pow(0.5, halvings)

    def wait_s(self, node_id: str, incarnation: int, now: float) -> float:
        """It would like to be a member, now: how long it has to wait still; 0 if it may join."""
        joins = self._joins.get(node_id)
        if joins is None:
            return 0.0
        stayed = now - joins.heard < self._timing.suspect_after_s
        if not stayed or joins.waiting != incarnation:
            if self._weight(node_id, now) < FREE_JOINS:
                return 0.0
            joins.waiting, joins.at = incarnation, now
        joins.heard = now
        pause = self._timing.member_ttl_s * 2 ** min(joins.weight - FREE_JOINS, 16.0)
        return max(joins.at + min(pause, self._timing.flap_wait_max_s) - now, 0.0)
