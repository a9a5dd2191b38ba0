"""Computes the masters. Every node does so from the same view, without an election.

Safety does not depend on it. If two nodes disagree, or wrongly act as masters, their tables
merge (table.py) and the higher view number wins (view.py).
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from heapq import nsmallest

from peercached.membership.timing import Timing
from peercached.membership.view import NO_HEAD, Member, NodeAddress, State, View

# While no master answers, more and more nodes take over. This bounds the rounds.
TAKEOVERS_MAX = 8


def masters_of(members: Iterable[Member], limit: int) -> tuple[Member, ...]:
    """Heads in the order of discovery_addr, then the others by node id (by default the host name).
    A leaving member is a master only if every member is leaving."""
    present = [m for m in members if m.state in (State.ALIVE, State.LEAVING)]
    staying = [m for m in present if m.state is State.ALIVE]
    return tuple(nsmallest(limit, staying or present, key=_place))


def _place(member: Member) -> tuple[bool, int, str]:
    return (member.head_rank == NO_HEAD, member.head_rank, member.node_id)


class Order:
    """The order of masters in one view, as the node `own` sees it. `suspected`: processes
    that fail to answer READs, lookups or records. Not thread safe."""

    def __init__(
        self,
        view: View,
        own: Member,
        limit: int,
        timing: Timing,
        suspected: Container[NodeAddress] = (),
    ) -> None:
        self.view, self.own = view, own
        self._members = view.members
        if own.head_rank != NO_HEAD:  # may begin a cluster, or return to its rank in one
            self._members = (*(m for m in view.members if m.node_id != own.node_id), own)
        self._limit = limit
        self._timing = timing
        self._suspected = suspected
        self.proper = masters_of(self._members, limit)
        self.proper_ids = frozenset(m.node_id for m in self.proper)
        self.endpoints = frozenset(m.address.endpoint for m in self.proper)
        self._acting: tuple[Member, ...] = ()  # beside the proper ones
        self._acting_as_of = (0, float("-inf"))  # takeovers and time of _acting

    def masters(self, silence_s: float, now: float) -> tuple[Member, ...]:
        """The masters, in order. After a long silence of all, as many more nodes take over."""
        takeovers = self._takeovers(silence_s)
        if not takeovers or self.own.node_id in self.proper_ids:
            return self.proper
        counted, as_of = self._acting_as_of
        # A look-up of all suspects at each heartbeat would cost too much.
        if counted != takeovers or now - as_of > self._timing.heartbeat_interval_s / 10:
            self._acting_as_of = (takeovers, now)
            others = (m for m in self._members if m.node_id not in self.proper_ids)
            # Skip suspects: a whole rack may die at once.
            living = (m for m in others if m.address not in self._suspected)
            self._acting = masters_of(living, self._limit * takeovers)
        return self.proper + self._acting

    def _takeovers(self, silence_s: float) -> int:
        over_s = silence_s - self._timing.takeover_after_s
        if over_s < 0:
            return 0
        return min(1 + int(over_s / self._timing.takeover_again_s), TAKEOVERS_MAX)
