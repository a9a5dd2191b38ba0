"""Membership as a state machine: events and `now` in, actions out. docs/architecture.md tells
why it converges; the parts are table.py (what is known), master.py (what a master makes of it),
links.py (heartbeats), view.py and updates.py (views and how they travel)."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from peercached.membership.claims import taken
from peercached.membership.flapping import Flapping
from peercached.membership.links import Links
from peercached.membership.master import Master
from peercached.membership.messages import (
    Action,
    Heartbeat,
    HeartbeatAnswer,
    Probe,
    PushView,
    Refused,
    SendBeat,
    ViewChanged,
)
from peercached.membership.order import masters_of
from peercached.membership.roles import Roles
from peercached.membership.table import Table
from peercached.membership.timing import Timing
from peercached.membership.updates import History, ViewUpdate
from peercached.membership.view import (
    NO_HEAD,
    VIEW_NUMBER_MAX,
    Member,
    NodeAddress,
    State,
    Verdict,
    View,
)

# Joins that come together make one view, not one each: every view is a ring and a resync for
# every member, so the more there are, the longer they are collected.
VIEW_SPACING_S = 0.05
VIEW_SPACING_PER_MEMBER_S = 0.0005
# Looks at the clock per heartbeat interval, for who is silent.
SCANS = 4
# A cold node asks the heads and so many of those who were masters when it was last a member.
REMEMBERED_ASKED = 8


class Membership:
    """Not thread safe; `now` is monotonic seconds, the same clock in all calls.

    `heads` are the configured endpoints in order; `own_rank` is this node's place among them,
    None if it is no head. Without heads the node is a cluster of its own. `remembered` is the
    last view of an earlier start (store.py): whom to ask beside the heads, and whether this
    node was a master.
    """

    def __init__(
        self,
        address: NodeAddress,
        heads: Sequence[str],
        own_rank: int | None,
        timing: Timing,
        now: float,
        rng: random.Random,
        max_masters: int = 3,
        remembered: View | None = None,
    ) -> None:
        self.address = address
        self.own = Member(address, head_rank=NO_HEAD if own_rank is None else own_rank)
        self.view = View.alone(address)  # the newest that has this process: what it goes by
        self.latest = View.nothing()  # the newest that is known
        self.refused = ""
        self._timing = timing
        self._max_masters = max_masters
        self._clustered = bool(heads)
        self._table = Table(timing.remember_gone_s)
        self._history = History()
        self._flapping = Flapping(timing)
        self._master = Master(address.node_id, self._table, timing, self._flapping, rng)
        self._was_master = False
        then = masters_of(remembered.members if remembered else (), REMEMBERED_ASKED)
        self._remembered_rank = next(
            (i for i, m in enumerate(then[:max_masters]) if m.node_id == address.node_id), None
        )
        own_endpoints = {address.endpoint, *([] if own_rank is None else [heads[own_rank]])}
        self._own_endpoints = own_endpoints
        self.links = Links(
            [head for head in heads if head not in own_endpoints],
            [m.address.endpoint for m in then if m.address.endpoint not in own_endpoints],
            timing,
            now,
            rng,
        )
        self._roles = Roles(max_masters, timing, self.links)
        self._started = self._clock = now
        self._told = remembered.number if remembered else 0  # the highest number mentioned
        self._told_at = float("-inf")
        self._asked_until = now
        self._made_at = float("-inf")
        self._dirty_since: float | None = None
        self._stamped = -1  # the table's changes that the latest view has
        self._scan_at = now

    # --- time

    def _advance(self, now: float) -> None:
        """We were stopped ourselves? Then the others were not silent."""
        gap_s, self._clock = now - self._clock, now
        if gap_s > self._timing.pause_s:
            self._master.liveness.forgive(gap_s)
            self.links.forgive(gap_s)

    def tick(self, now: float) -> list[Action]:
        self._advance(now)
        if self.own.state is State.LEFT or not self._clustered:
            return []
        if self.latest.number:
            self.links.aim(self._targets(now), now)
        beats: list[Action] = []
        for link in self.links.due(now):
            update = self._whole(now) if link.send_view else None
            link.send_view = False
            beats.append(SendBeat(link.endpoint, self._beat(update)))
        return beats + self._lead(now)

    def next_at(self, now: float) -> float:
        """When to call tick() again at the latest."""
        interval_s = self._timing.heartbeat_interval_s
        times = [now + interval_s / (SCANS if self._was_master else 1), self.links.next_at()]
        if self._dirty_since is not None:
            times.append(max(self._stamp_at(now), now + 0.001))
        return max(min(times), now)

    # --- who is a master

    def masters(self, now: float) -> tuple[Member, ...]:
        """In order; who acts when nobody of them answers is in it too (roles.py)."""
        self._roles.follow(self.latest, self.own)
        return self._roles.masters(now)

    def _targets(self, now: float) -> list[tuple[str, str]]:
        return [
            (m.node_id, m.address.endpoint)
            for m in self.masters(now)
            if m.node_id != self.address.node_id and m.address.endpoint not in self._own_endpoints
        ]

    def is_master(self, now: float) -> bool:
        if self.refused or not self._clustered or self.own.state is not State.ALIVE:
            return False
        if any(link.answered and link.verdict is Verdict.WAIT for link in self.links):
            return False  # the other masters do not want it yet
        self._roles.follow(self.latest, self.own)
        if self.latest.number == 0 and self._remembered_rank is not None:
            return True
        return self._roles.within(now)

    # --- what this node asks of the masters

    def answered(self, endpoint: str, answer: HeartbeatAnswer, now: float) -> list[Action]:
        self._advance(now)
        link = self.links.get(endpoint)
        if link is None or self.own.state is State.LEFT:
            return []
        self.links.answered(link, answer.verdict, answer.responder, answer.reason, now)
        first = self.links.verdict_of_first()
        if first is not None and first.verdict is Verdict.DUPLICATE:
            return self._refuse(first.problem)
        actions: list[Action] = []
        if answer.update is not None:
            actions += self._learn(answer.update, now)
        if answer.accused and self.own.sequence <= answer.accused:
            self._object(answer.accused, now)
        if answer.wants_view and self.latest.number:
            link.send_view, link.next_at = True, now
        return actions + self._lead(now)

    def failed(self, endpoint: str, problem: str, now: float) -> list[Action]:
        self._advance(now)
        link = self.links.get(endpoint)
        if link is not None:
            self.links.failed(link, problem, now)
        return self._lead(now)

    def _object(self, sequence: int, now: float) -> None:
        """We are held for dead, and are not. A master says at once whom else it has with it, or
        its own would be taken in again one after the other."""
        self.own = replace(self.own, sequence=sequence + 1)
        if self._was_master:
            for link in self.links:
                link.send_view = True
        self.links.beat_now(now)

    def _beat(self, update: ViewUpdate | None = None) -> Heartbeat:
        return Heartbeat(self.own, self.latest.number, update)

    def _whole(self, now: float) -> ViewUpdate:
        return self._history.update_for(0, self._table, now)

    def _refuse(self, reason: str) -> list[Action]:
        first = not self.refused
        self.refused = reason
        actions: list[Action] = [Refused(reason)] if first else []
        if self.view.number > 0:
            self.view = View.alone(self.address)
            actions.append(ViewChanged(self.view))
        return actions

    @property
    def settled(self) -> bool:
        """Start-up need not wait any longer: in a view, or nobody answers, or refused."""
        if self.view.number > 0 or self.refused or not self._clustered:
            return True
        tried = all(link.tried for link in self.links)
        promised = any(
            link.answered and link.verdict in (Verdict.WAIT, Verdict.ACCEPTED)
            for link in self.links
        )
        return tried and not promised and not self.is_master(self._clock)

    # --- what others ask of this node

    def on_heartbeat(self, beat: Heartbeat, now: float) -> tuple[HeartbeatAnswer, list[Action]]:
        self._advance(now)
        sender = beat.sender
        if sender.node_id == self.address.node_id:
            reason = taken(sender.address, self.address)
            return HeartbeatAnswer(Verdict.DUPLICATE, reason, responder=self.address.node_id), []
        actions: list[Action] = []
        if beat.update is not None:
            actions += self._learn(beat.update, now)
        if self._told < beat.view_number < VIEW_NUMBER_MAX:
            if self._told <= self.latest.number:
                self._told_at = now
            self._told = beat.view_number
        verdict, reason, accused = Verdict.NOT_A_MASTER, self._no_master(), 0
        if self.is_master(now):
            self._take_office(now)
            verdict, reason, accused = self._master.heard(sender, now)
            actions += self._lead(now)
        update = None
        if self.latest.number > beat.view_number:
            update = self._history.update_for(beat.view_number, self._table, now)
        wants = self.latest.number < beat.view_number < VIEW_NUMBER_MAX
        if wants := wants and now >= self._asked_until:
            # Of the many that tell of a newer view, one is asked for it at a time.
            self._asked_until = now + self._timing.call_deadline_s
        responder = self.address.node_id
        return HeartbeatAnswer(verdict, reason, update, responder, accused, wants), actions

    def _no_master(self) -> str:
        if self.latest.number:
            return ""
        return f"{self.address.node_id} is no head: its own discovery_addr does not name it"

    def probed(self, probe: Probe, alive: bool, now: float) -> list[Action]:
        self._advance(now)
        self._master.liveness.probed(probe.target.node_id, probe.round, alive, now)
        return self._lead(now)

    # --- views

    def _learn(self, update: ViewUpdate, now: float) -> list[Action]:
        if not 0 < update.number < VIEW_NUMBER_MAX:
            return []
        view = self._history.resolve(update)
        if view is None:
            return []
        office = self.is_master(now)
        if office:
            self._take_office(now)
            self._master.told(view.members, update.gone, now)
        else:
            for grave in update.gone:
                self._table.bury(grave, now)
        actions: list[Action] = []
        if view.number > self.latest.number:
            if not office:
                self._table.only(view.members)
            actions += self._adopt(view, now)
        self._defend(now)
        return actions

    def _adopt(self, view: View, now: float) -> list[Action]:
        self._flapping.saw(self.latest, view, now)
        self.latest = view
        self._history.add(view, self._table.burials)
        self.links.aim(self._targets(now), now)
        self._stamped = -1
        # A view without us is older than our last heartbeat to its maker, or says that we were
        # thrown out. Either way the next heartbeat brings one that has us; what we have serves
        # better until then than no view.
        if not view.has(self.address) or self.own.state is State.LEFT:
            return []
        member = view.by_id[self.address.node_id]
        if member.sequence > self.own.sequence:
            self.own = replace(self.own, sequence=member.sequence)
        self.view = view
        self.refused = ""
        return [ViewChanged(view)]

    def _defend(self, now: float) -> None:
        """Against news that this process is dead, or that its id is another process's."""
        gone = self._table.gone(self.address.node_id)
        if gone is not None and gone.age >= self.own.age and self.own.state is not State.LEFT:
            self._object(gone.sequence, now)

    def _take_office(self, now: float) -> None:
        """As a master this node is in its own table, and watches the others."""
        if not self._was_master:
            self._was_master = True
            self._master.begin()
        known = self._table.member(self.address.node_id)
        gone = self._table.gone(self.address.node_id)
        newest = known.age if known is not None else gone.age if gone is not None else (-1, 0, 0)
        if known != self.own:
            if self.own.age <= newest:
                self.own = replace(self.own, sequence=newest[0] + 1)
            self._table.take(self.own, now)
        self._master.watch(now)

    def _lead(self, now: float) -> list[Action]:
        """As a master: probes, deaths, and a new view if the latest is not what is known."""
        if not self.is_master(now):
            self._was_master = False
            self._dirty_since = None
            return []
        self._take_office(now)
        actions: list[Action] = []
        if now >= self._scan_at:
            self._scan_at = now + self._timing.heartbeat_interval_s / SCANS
            patience_s = self._roles.before_us(now) * self._timing.heartbeat_interval_s
            actions += self._master.probes(self.masters(now), patience_s, now)
            self._master.bury_dead(now)
        if self._stamped != self._table.changes:
            self._stamped = self._table.changes
            known = {m.node_id: m for m in self._table.members()}
            if known == self.latest.by_id:
                self._dirty_since = None
            elif self._dirty_since is None:
                self._dirty_since = now
        if self._dirty_since is not None and now >= self._stamp_at(now):
            actions += self._stamp(now)
        return actions

    def _stamp_at(self, now: float) -> float:
        """When the table may become a view."""
        assert self._dirty_since is not None
        timing = self._timing
        spacing_s = VIEW_SPACING_S + VIEW_SPACING_PER_MEMBER_S * len(self._table)
        at = self._made_at + spacing_s
        if self._told > self.latest.number:  # its members first, if they can be had
            at = max(at, self._told_at + 2 * timing.heartbeat_interval_s)
        if not self.latest.has(self.address) and not all(link.tried for link in self.links):
            # Others may know of a cluster, or why this node must wait.
            at = max(at, self._started + timing.call_deadline_s)
        if self.latest.number == 0:
            rank = self.own.head_rank
            if rank == NO_HEAD:
                rank = self._max_masters + (self._remembered_rank or 0)
            return max(at, self._started + rank * timing.heartbeat_interval_s)
        return max(
            at, self._dirty_since + 0.5 * self._roles.before_us(now) * timing.call_deadline_s
        )

    def _stamp(self, now: float) -> list[Action]:
        before = self.latest.number
        view = self.latest.next(self._table.members(), self._told)
        self._made_at = now
        self._dirty_since = None
        changed = self._adopt(view, now)
        self._stamped = self._table.changes
        beat = self._beat(self._history.update_for(before, self._table, now))
        to = [m.address for m in self.latest.members if m.node_id != self.address.node_id]
        first = {m.node_id for m in self.masters(now)}
        to.sort(key=lambda address: address.node_id not in first)
        return [*changed, *(PushView(address, beat) for address in to)]

    # --- what this node announces

    def announce_drain(self, now: float) -> list[Action]:
        """It is about to leave: members see the state LEAVING; it is no master any more."""
        return self._announce(State.LEAVING, now)

    def announce_stay(self, now: float) -> list[Action]:
        """It stays after all."""
        return self._announce(State.ALIVE, now)

    def _announce(self, state: State, now: float) -> list[Action]:
        if self.own.state in (state, State.LEFT):
            return []
        master = self.is_master(now) and self.latest.number > 0
        self.own = replace(self.own, sequence=self.own.sequence + 1, state=state)
        self.links.beat_now(now)
        actions: list[Action] = []
        if master:
            self._table.take(self.own, now)
            actions += self._stamp(now)
        return actions + self.tick(now)

    def announce_leave(self, now: float) -> list[Action]:
        """The last word: to all masters; as one, a last view without itself to all members."""
        if self.own.state is State.LEFT:
            return []
        master = self.is_master(now) and self.latest.number > 0
        self.own = replace(self.own, sequence=self.own.sequence + 1, state=State.LEFT)
        beats: list[Action] = [
            SendBeat(link.endpoint, self._beat()) for link in self.links if link.answered
        ]
        if master:
            self._table.take(self.own, now)
            beats += self._stamp(now)
        return beats

    # --- for status

    def silence_s(self, now: float) -> dict[str, float]:
        """As a master: seconds since each member was heard."""
        return self._master.liveness.silence_s(now) if self.is_master(now) else {}

    def endpoints(self) -> set[str]:
        return {link.endpoint for link in self.links}

    def reachable_masters(self, now: float) -> int:
        """This node counts, if it is one."""
        return self.is_master(now) + sum(link.answered for link in self.links)
