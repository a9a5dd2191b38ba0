"""Whether this node is a master now, and who the others are."""

from __future__ import annotations

from peercached.membership.links import Links
from peercached.membership.order import masters_of
from peercached.membership.timing import Timing
from peercached.membership.view import NO_HEAD, Member, View

# When nobody answers, more and more nodes take over; not without bound.
TAKEOVERS_MAX = 8


class Roles:
    """A calculation on the latest view and on who answers. Not thread safe."""

    def __init__(self, limit: int, timing: Timing, links: Links) -> None:
        self._limit = limit
        self._timing = timing
        self._links = links
        self._view = View.nothing()
        self._own: Member | None = None
        self._by_limit: dict[int, tuple[Member, ...]] = {}
        self._own_proper = False  # this node is within the limit
        self._endpoints: frozenset[str] = frozenset()  # of the proper masters

    def follow(self, view: View, own: Member) -> None:
        """The latest view and this node, from now on."""
        if view is self._view and own is self._own:
            return
        self._view, self._own = view, own
        self._by_limit.clear()
        proper = self._first(self._limit)
        self._own_proper = any(m.address.node_id == own.address.node_id for m in proper)
        self._endpoints = frozenset(m.address.endpoint for m in proper)

    def masters(self, now: float) -> tuple[Member, ...]:
        """In order. When none of them has answered for long, as many again take over."""
        if self._own_proper:
            return self._first(self._limit)
        heard = [k.heard for k in self._links if k.is_head or k.endpoint in self._endpoints]
        silence_s = now - max(heard, default=now)
        return self._first(self._limit * (1 + self._takeovers(silence_s)))

    def _takeovers(self, silence_s: float) -> int:
        over_s = silence_s - self._timing.takeover_after_s
        if over_s < 0:
            return 0
        return min(1 + int(over_s / self._timing.takeover_again_s), TAKEOVERS_MAX)

    def _first(self, limit: int) -> tuple[Member, ...]:
        found = self._by_limit.get(limit)
        if found is None:
            members, own = self._view.members, self._own
            assert own is not None
            if own.head_rank != NO_HEAD:  # it may begin a cluster, or take its place in one again
                members = (*(m for m in members if m.node_id != own.node_id), own)
            found = self._by_limit[limit] = masters_of(members, limit)
        return found

    def within(self, now: float) -> bool:
        """This node is one of them."""
        if self._own_proper:
            return True
        assert self._own is not None
        own_id = self._own.node_id
        return any(m.address.node_id == own_id for m in self.masters(now))

    def before_us(self, now: float) -> int:
        """How many masters that answer come before this one: they act, it watches."""
        assert self._own is not None
        answering = {link.responder for link in self._links if link.answered}
        before = 0
        for member in self.masters(now):
            if member.node_id == self._own.node_id:
                break
            before += member.node_id in answering
        return before
