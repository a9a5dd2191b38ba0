"""The duties of a master: it watches the members and makes views."""

from __future__ import annotations

import random

from peercached.membership.knowledge import Knowledge
from peercached.membership.links import Links
from peercached.membership.master import Master
from peercached.membership.messages import Action, PushView
from peercached.membership.roles import Roles
from peercached.membership.timing import Timing
from peercached.membership.view import NO_HEAD, State, Verdict

# Joins that come together make one view: each view costs every member a new ring and a resync. So
# masters collect changes for longer in a larger cluster.
VIEW_SPACING_S = 0.05
VIEW_SPACING_PER_MEMBER_S = 0.0005
# Scans for silent members per heartbeat interval.
SCANS = 4


class MasterRole:
    """`cold_rank`: how many other nodes may begin a cluster before this one; None: it never may.
    Not thread safe; `now` is monotonic seconds."""

    def __init__(
        self,
        knowledge: Knowledge,
        links: Links,
        roles: Roles,
        timing: Timing,
        cold_rank: int | None,
        now: float,
        rng: random.Random,
    ) -> None:
        self._knowledge = knowledge
        self._links = links
        self._roles = roles
        self._timing = timing
        self._cold_rank = cold_rank
        self._started = now
        own_id = knowledge.own.node_id
        self.master = Master(own_id, knowledge.table, timing, knowledge.flapping, rng)
        self.held = False
        self._scan_at = now
        self._made_at = float("-inf")
        self._compared = (-1, -1)  # table.changes and view number, as last compared
        self._dirty_since: float | None = None  # when the table began to differ from the view

    def allowed(self, now: float) -> bool:
        """Whether this node is a master."""
        knowledge = self._knowledge
        if knowledge.refused or knowledge.own.state is State.LEFT:
            return False
        if any(link.answered and link.verdict is Verdict.WAIT for link in self._links):
            return False  # the other masters have not let it in yet
        if knowledge.latest.number == 0:
            return self._cold_rank is not None
        self._roles.follow(knowledge.latest, knowledge.own)
        return self._roles.within(now)

    def take(self, now: float) -> None:
        """Becomes a master if needed: enters itself into the table, and watches the others."""
        if not self.held:
            self.held = True
            self.master.begin()
        self._knowledge.enter(now)
        self.master.watch(now)

    def lead(self, now: float) -> list[Action]:
        """Probes silent members, buries dead ones, and makes a view if the table has changed."""
        if not self.allowed(now):
            self.held = False
            self._dirty_since = None
            return []
        self.take(now)
        actions: list[Action] = []
        if now >= self._scan_at:
            self._scan_at = now + self._timing.heartbeat_interval_s / SCANS
            patience_s = self._before_us(now) * self._timing.heartbeat_interval_s
            actions += self.master.probes(self._roles.masters(now), patience_s, now)
            self.master.declare_dead(now)
        self._compare(now)
        if self._dirty_since is not None and now >= self._stamp_at(now):
            actions += self.stamp(now)
        return actions

    def _before_us(self, now: float) -> int:
        self._roles.follow(self._knowledge.latest, self._knowledge.own)
        return self._roles.before_us(now)

    def _compare(self, now: float) -> None:
        knowledge = self._knowledge
        compared = (knowledge.table.changes, knowledge.latest.number)
        if self._compared == compared:
            return
        self._compared = compared
        if {m.node_id: m for m in knowledge.table.members()} == knowledge.latest.by_id:
            self._dirty_since = None
        elif self._dirty_since is None:
            self._dirty_since = now

    def next_at(self, now: float) -> float:
        if not self.held:
            return float("inf")
        interval_s = self._timing.heartbeat_interval_s
        at = min(max(self.master.liveness.next_at(), now + interval_s / SCANS), now + interval_s)
        if self._dirty_since is not None:
            at = min(at, max(self._stamp_at(now), now + 0.001))
        return at

    def _stamp_at(self, now: float) -> float:
        """When this master may make a view of the table."""
        assert self._dirty_since is not None
        knowledge, timing = self._knowledge, self._timing
        at = self._made_at + VIEW_SPACING_S + VIEW_SPACING_PER_MEMBER_S * len(knowledge.table)
        if knowledge.told > knowledge.latest.number:  # get that newer view first, if possible
            at = max(at, knowledge.told_at + 2 * timing.heartbeat_interval_s)
        own = knowledge.own.address
        if not knowledge.latest.has(own) and not all(link.tried for link in self._links):
            # Masters not asked yet may know of a cluster, or why this node must wait.
            at = max(at, self._started + timing.call_deadline_s)
        if knowledge.latest.number == 0:
            return max(at, self._started + (self._cold_rank or 0) * timing.heartbeat_interval_s)
        # Later masters give earlier ones time to make the view: saves messages.
        return max(at, self._dirty_since + 0.5 * self._before_us(now) * timing.call_deadline_s)

    def stamp(self, now: float) -> list[Action]:
        """Makes a view of the table and pushes it to all members, masters first."""
        knowledge = self._knowledge
        before = knowledge.latest.number
        view = knowledge.latest.next(knowledge.table.members(), knowledge.told)
        self._made_at = now
        self._dirty_since = None
        changed = knowledge.adopt(view, now)
        beat = knowledge.beat(knowledge.since(before, now))
        own_id = knowledge.own.node_id
        to = [m.address for m in view.members if m.node_id != own_id]
        self._roles.follow(view, knowledge.own)
        first = {m.node_id for m in self._roles.masters(now)}
        to.sort(key=lambda address: address.node_id not in first)
        return [*changed, *(PushView(address, beat) for address in to)]


def cold_rank(head_rank: int, remembered_rank: int | None, max_masters: int) -> int | None:
    """Heads come in their order, then former masters in theirs; None: this node is neither."""
    if head_rank != NO_HEAD:
        return head_rank
    return None if remembered_rank is None else max_masters + remembered_rank
