"""Computes the acting masters, and whether this node is one of them."""

from __future__ import annotations

from collections.abc import Callable

from peercached.membership.links import Links
from peercached.membership.order import masters_of
from peercached.membership.timing import Timing
from peercached.membership.view import NO_HEAD, Member, NodeAddress, View

# While no master answers, more and more nodes take over. This bounds the rounds.
TAKEOVERS_MAX = 8


class Roles:
    """Computes roles from the latest view and from the masters that answer. Not thread safe.
    `suspected`: whether a node fails to answer READs, lookups or records."""

    def __init__(
        self,
        limit: int,
        timing: Timing,
        links: Links,
        suspected: Callable[[NodeAddress], bool] = lambda address: False,
    ) -> None:
        self._limit = limit
        self._timing = timing
        self._links = links
        self._suspected = suspected
        self._view = View.nothing()
        self._own: Member | None = None
        self._proper: tuple[Member, ...] = ()
        self._acting: tuple[Member, ...] = ()  # beside _proper: nodes that took over
        self._acting_as_of = (0, float("-inf"))  # takeovers and time of _acting
        self._own_proper = False  # this node is among _proper
        self._endpoints: frozenset[str] = frozenset()  # of the proper masters

    def follow(self, view: View, own: Member) -> None:
        """Uses this view and this node's record from now on."""
        if view is self._view and own is self._own:
            return
        self._view, self._own = view, own
        self._proper = masters_of(self._candidates(), self._limit)
        self._acting_as_of = (0, float("-inf"))
        self._own_proper = any(m.address.node_id == own.address.node_id for m in self._proper)
        self._endpoints = frozenset(m.address.endpoint for m in self._proper)

    def masters(self, now: float) -> tuple[Member, ...]:
        """The masters, in order. After a long silence of all, as many more nodes take over."""
        if self._own_proper:
            return self._proper
        heard = [k.heard for k in self._links if k.is_head or k.endpoint in self._endpoints]
        takeovers = self._takeovers(now - max(heard, default=now))
        return self._proper + self._next(takeovers, now) if takeovers else self._proper

    def _takeovers(self, silence_s: float) -> int:
        over_s = silence_s - self._timing.takeover_after_s
        if over_s < 0:
            return 0
        return min(1 + int(over_s / self._timing.takeover_again_s), TAKEOVERS_MAX)

    def _candidates(self) -> tuple[Member, ...]:
        members, own = self._view.members, self._own
        assert own is not None
        if own.head_rank != NO_HEAD:  # may begin a cluster, or return to its rank in one
            members = (*(m for m in members if m.node_id != own.node_id), own)
        return members

    def _next(self, takeovers: int, now: float) -> tuple[Member, ...]:
        """The nodes that take over. Skips suspects: a whole rack may die at once."""
        counted, as_of = self._acting_as_of
        if counted != takeovers or now - as_of > self._timing.heartbeat_interval_s / 10:
            self._acting_as_of = (takeovers, now)
            proper = {m.node_id for m in self._proper}
            living = (
                m
                for m in self._candidates()
                if m.node_id not in proper and not self._suspected(m.address)
            )
            self._acting = masters_of(living, self._limit * takeovers)
        return self._acting

    def within(self, now: float) -> bool:
        """Whether this node is a master."""
        if self._own_proper:
            return True
        assert self._own is not None
        own_id = self._own.node_id
        return any(m.address.node_id == own_id for m in self.masters(now))

    def before_us(self, now: float) -> int:
        """Number of answering masters before this one. They act first; this one waits."""
        assert self._own is not None
        answering = {link.responder for link in self._links if link.answered}
        before = 0
        for member in self.masters(now):
            if member.node_id == self._own.node_id:
                break
            before += member.node_id in answering
        return before
