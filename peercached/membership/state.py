"""Membership as a state machine: events and `now` in, actions out. docs/membership.md tells
why it converges. Its parts: knowledge.py (this node's knowledge), links.py (its heartbeats),
roles.py (the masters), master_role.py (a master's duties)."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence

from peercached.membership.claims import taken
from peercached.membership.knowledge import Knowledge
from peercached.membership.links import Links
from peercached.membership.master_role import MasterRole, cold_rank
from peercached.membership.messages import (
    Action,
    Heartbeat,
    HeartbeatAnswer,
    Probe,
    SendBeat,
)
from peercached.membership.order import masters_of
from peercached.membership.reach import ViewReach
from peercached.membership.roles import Roles
from peercached.membership.signs import NEVER, OwnSign, Sign
from peercached.membership.timing import Timing
from peercached.membership.updates import ViewUpdate
from peercached.membership.view import (
    NO_HEAD,
    Member,
    NodeAddress,
    State,
    Verdict,
    View,
)

# Former masters that a cold start asks, beside the heads.
REMEMBERED_ASKED = 8


_OF_MASTERS = (Verdict.ACCEPTED, Verdict.WAIT, Verdict.DUPLICATE)


class Membership:
    """Not thread safe; `now` is monotonic seconds, the same clock in all calls.

    `heads` are the configured endpoints in order. `own_rank` is this node's index in them, or None
    if it is no head. Without heads the node is a cluster of its own. `remembered` is the last view
    of an earlier start (store.py): it names former masters to ask, perhaps this node among them.
    `suspected`: see roles.py.
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
        suspected: Callable[[NodeAddress], bool] = lambda address: False,
    ) -> None:
        self.address = address
        self._timing = timing
        self._clustered = bool(heads)
        own = Member(address, head_rank=NO_HEAD if own_rank is None else own_rank)
        self._knowledge = Knowledge(own, remembered.number if remembered else 0, timing)
        then = masters_of(remembered.members if remembered else (), REMEMBERED_ASKED)
        self._own_endpoints = {address.endpoint, *([] if own_rank is None else [heads[own_rank]])}
        self.links = Links(
            [head for head in heads if head not in self._own_endpoints],
            [m.address.endpoint for m in then if m.address.endpoint not in self._own_endpoints],
            timing,
            now,
            rng,
        )
        self._roles = Roles(max_masters, timing, self.links, suspected)
        ranks = (i for i, m in enumerate(then[:max_masters]) if m.node_id == address.node_id)
        rank = cold_rank(own.head_rank, next(ranks, None), max_masters)
        self._master_role = MasterRole(
            self._knowledge, self.links, self._roles, timing, rank, now, rng
        )
        self._clock = now
        self._asked_until = now
        self.beats_sent = 0
        self.signs_counted = 0
        self._processes: tuple[View, dict[int, Member]] = (View.nothing(), {})

    @property
    def view(self) -> View:
        """The view in use: the newest that has this process. Number 0: none yet."""
        return self._knowledge.view

    @property
    def latest(self) -> View:
        """The newest known view, perhaps without this process."""
        return self._knowledge.latest

    @property
    def own(self) -> Member:
        return self._knowledge.own

    @property
    def refused(self) -> str:
        """Why this node id cannot be a member; empty if it can."""
        return self._knowledge.refused

    # --- time

    def _advance(self, now: float) -> None:
        """Detects that our own process was stopped: then the others were not silent."""
        gap_s, self._clock = now - self._clock, now
        if gap_s > self._timing.pause_s:
            self._master_role.master.liveness.forgive(gap_s)
            self.links.forgive(gap_s)

    def tick(self, now: float) -> list[Action]:
        self._advance(now)
        if self.own.state is State.LEFT or not self._clustered:
            return []
        self._aim(now)
        beats: list[Action] = []
        for link in self.links.due(now):
            update = self._knowledge.whole(now) if link.send_view and self.latest.number else None
            link.send_view = False
            beats.append(SendBeat(link.endpoint, self._knowledge.beat(update)))
        self.beats_sent += len(beats)
        return beats + self._lead(now) + self._knowledge.waited(now)

    def next_at(self, now: float) -> float:
        """The latest time for the next tick()."""
        at = min(now + self._timing.heartbeat_interval_s, self.links.next_at())
        at = min(at, self._knowledge.waits_until)
        return max(min(at, self._master_role.next_at(now)), now)

    def _lead(self, now: float) -> list[Action]:
        return self._master_role.lead(now) if self._clustered else []

    # --- masters

    def masters(self, now: float) -> tuple[Member, ...]:
        """The masters, in order, with the nodes that took over from silent ones (roles.py)."""
        self._roles.follow(self.latest, self.own)
        return self._roles.masters(now)

    def is_master(self, now: float) -> bool:
        return self._clustered and self._master_role.allowed(now)

    def _aim(self, now: float) -> None:
        """Heartbeats go to the masters of the latest view, and to the heads."""
        if self.latest.number:
            others = (m for m in self.masters(now) if m.node_id != self.address.node_id)
            targets = ((m.node_id, m.address.endpoint) for m in others)
            self.links.aim([t for t in targets if t[1] not in self._own_endpoints], now)

    # --- what this node asks of the masters

    def answered(self, endpoint: str, answer: HeartbeatAnswer, now: float) -> list[Action]:
        self._advance(now)
        link = self.links.get(endpoint)
        if link is None or self.own.state is State.LEFT:
            return []
        self.links.answered(link, answer.verdict, answer.responder, answer.reason, now)
        first = self.links.verdict_of_first()
        if first is not None and first.verdict is Verdict.DUPLICATE:
            return self._knowledge.refuse(first.problem)
        actions: list[Action] = []
        if answer.update is not None:
            actions += self._learn(answer.update, now, asked=True)
        if answer.accused and self.own.sequence <= answer.accused:
            if self._knowledge.sequence_within_reach(self.address.node_id, answer.accused):
                self._object(answer.accused, now)
            else:
                self._knowledge.reach.refuse(now)
        if answer.wants_view:
            link.send_view, link.next_at = True, now
        return actions + self._lead(now)

    def failed(self, endpoint: str, problem: str, now: float) -> list[Action]:
        self._advance(now)
        link = self.links.get(endpoint)
        if link is not None:
            self.links.failed(link, problem, now)
        return self._lead(now)

    def _object(self, sequence: int, now: float) -> None:
        """Refutes that we are dead. If we are a master, our heartbeats carry our view. Otherwise
        the members of our half of a partition would return one by one."""
        self._knowledge.object(sequence, now)
        self.links.beat_now(now, with_view=self._master_role.held)

    @property
    def settled(self) -> bool:
        """Whether start-up need not wait longer: we are in a view or refused, or nobody answers."""
        if self.view.number > 0 or self.refused or not self._clustered:
            return True
        tried = all(link.tried for link in self.links)
        promised = any(
            link.answered and link.verdict in (Verdict.WAIT, Verdict.ACCEPTED)
            for link in self.links
        )
        return tried and not promised and not self.is_master(self._clock)

    @property
    def waits(self) -> str:
        """Why an answering master keeps this node out of the view; empty if none does so."""
        if self.view.number > 0:
            return ""
        asked = (k for k in self.links if k.answered and k.verdict in _OF_MASTERS)
        return next((k.problem or "it is not in a view yet" for k in asked), "")

    # --- what others ask of this node

    def on_heartbeat(self, beat: Heartbeat, now: float) -> tuple[HeartbeatAnswer, list[Action]]:
        self._advance(now)
        sender, own_id = beat.sender, self.address.node_id
        if sender.node_id == own_id:
            reason = taken(sender.address, self.address)
            return HeartbeatAnswer(Verdict.DUPLICATE, reason, responder=own_id), []
        actions: list[Action] = []
        if beat.update is not None:
            actions += self._learn(beat.update, now, by_master=self._is_known_master(sender, now))
        self._knowledge.hear_of(beat.view_number, now)
        verdict, reason, accused = Verdict.NOT_A_MASTER, self._no_master(), 0
        if not self._knowledge.sequence_within_reach(sender.node_id, sender.sequence):
            self._knowledge.reach.refuse(now)
            verdict = Verdict.WAIT
            reason = f"sequence {sender.sequence} is far above what is known of {sender.node_id}"
        elif self.is_master(now):
            self._master_role.take(now)
            verdict, reason, accused = self._master_role.master.heard(sender, now)
            actions += self._lead(now)
        number = self.latest.number
        update = self._knowledge.since(beat.view_number, now) if number > beat.view_number else None
        wants = number < beat.view_number <= self._knowledge.told and now >= self._asked_until
        if wants:
            # Many senders know the newer view: ask one at a time.
            self._asked_until = now + self._timing.call_deadline_s
        return HeartbeatAnswer(verdict, reason, update, own_id, accused, wants), actions

    def _no_master(self) -> str:
        if self.latest.number:
            return ""
        return f"{self.address.node_id} is no head: its own discovery_addr does not name it"

    def just_heard(self, node: NodeAddress, now: float) -> bool:
        """Whether this node is a master and has just heard that very process."""
        heard = self._master_role.master.liveness.just_heard(node.node_id, node.incarnation, now)
        return heard and self.is_master(now)

    def probed(self, probe: Probe, alive: bool, now: float) -> list[Action]:
        self._advance(now)
        self._master_role.master.liveness.probed(probe.target.node_id, probe.round, alive, now)
        return self._lead(now)

    def _is_known_master(self, sender: Member, now: float) -> bool:
        return any(m.address.same_process(sender.address) for m in self.masters(now))

    def _learn(
        self, update: ViewUpdate, now: float, asked: bool = False, by_master: bool = True
    ) -> list[Action]:
        knowledge = self._knowledge
        view = knowledge.resolve(update, now, asked)
        if view is None:
            return []
        knowledge.flapping.learn(update.joins, now)
        is_master = self.is_master(now)
        if is_master:
            self._master_role.take(now)
            self._master_role.master.told(view.members, update.gone, now, by_master)
        else:
            for tombstone in update.gone:
                knowledge.table.add_tombstone(tombstone, now)
        actions: list[Action] = []
        if view.number > self.latest.number:
            if not is_master:
                knowledge.table.only(view.members)
            actions += knowledge.adopt(view, now)
            self._aim(now)
        if (sequence := knowledge.accused()) is not None:
            self._object(sequence, now)
        return actions

    # --- signs of life

    def own_sign(self, now: float) -> OwnSign:
        """The sign to send until the next tick."""
        if self.refused or not self.latest.has(self.address) or self.own.state is State.LEFT:
            return OwnSign()
        return OwnSign(self.latest.number, self.own.sequence, self.is_master(now))

    def hear(self, signs: Iterable[Sign], now: float) -> None:
        """Takes the signs received since the last call. Call it before tick()."""
        self._advance(now)
        if self.own.state is State.LEFT or not self.latest.has(self.address):
            return
        for sign in signs:
            member = self._process(sign.incarnation)
            if member is None:
                continue
            known = (self.latest.number, member.sequence, True)
            if known != (sign.view_number, sign.sequence, sign.same_epochs):
                self.links.has_news(member.node_id)
                continue
            self.signs_counted += 1
            if self._master_role.held:
                liveness = self._master_role.master.liveness
                liveness.gave_sign(member.node_id, sign.incarnation, sign.at)
            if sign.is_master and sign.answered_at > NEVER:
                self.links.gave_sign(member.node_id, sign.answered_at)

    def _process(self, incarnation: int) -> Member | None:
        """The member of the latest view with that incarnation."""
        view, processes = self._processes
        if view is not self.latest:
            processes = {m.address.incarnation: m for m in self.latest.members}
            self._processes = (self.latest, processes)
        return processes.get(incarnation)

    # --- what this node announces

    def announce_drain(self, now: float) -> list[Action]:
        """Announces that this node will leave: state LEAVING. It is a master no more, unless every
        other member is leaving, too."""
        return self._announce(State.LEAVING, now)

    def announce_stay(self, now: float) -> list[Action]:
        """Cancels announce_drain()."""
        return self._announce(State.ALIVE, now)

    def _announce(self, state: State, now: float) -> list[Action]:
        if self.own.state in (state, State.LEFT):
            return []
        actions = self._last_view(state, now)
        self.links.beat_now(now)
        return actions + self.tick(now)

    def announce_leave(self, now: float) -> list[Action]:
        """Says goodbye to all masters. A master also pushes a last view without itself."""
        if self.own.state is State.LEFT:
            return []
        view = self._last_view(State.LEFT, now)
        beat = self._knowledge.beat()
        return [*(SendBeat(k.endpoint, beat) for k in self.links if k.answered), *view]

    def _last_view(self, state: State, now: float) -> list[Action]:
        """Takes the new state. A master makes a view of it now: later it may be no master, and
        there may be no other."""
        master = self.is_master(now) and self.latest.number > 0
        self._knowledge.announce(state)
        if not master:
            return []
        self._knowledge.table.take(self.own, now)
        return self._master_role.stamp(now)

    # --- for status

    @property
    def reach(self) -> ViewReach:
        """Counts refused view numbers and sequences (reach.py)."""
        return self._knowledge.reach

    def has_left(self, node_id: str, incarnation: int) -> bool:
        """Whether that process has said goodbye."""
        gone = self._knowledge.table.gone(node_id)
        return gone is not None and (gone.incarnation, gone.state) == (incarnation, State.LEFT)

    def silence_s(self, now: float) -> dict[str, float]:
        """Seconds since each member was last heard; empty if this node is no master."""
        return self._master_role.master.liveness.silence_s(now) if self.is_master(now) else {}

    def endpoints(self) -> set[str]:
        """The endpoints that get heartbeats of this node."""
        return {link.endpoint for link in self.links}
