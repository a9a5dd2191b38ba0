"""The membership of one node: events and `now` in, actions out. docs/membership.md tells why it
converges.

`Membership` owns the parts below and connects them. No part knows of another.

    state.py     this node: its phases, its record, the view in use
    roster.py    the members: table, failure detector, claims, joins
    updates.py   the newest views, and their differences
    order.py     the masters, computed from the newest view
    links.py     this node's heartbeats to the masters
    reach.py     the view numbers that it believes
    former.py    lost members, which may live on in another part
    ages.py      when each process was first in a view
"""

from __future__ import annotations

import random
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile

from peercached.membership.ages import Ages
from peercached.membership.claims import taken
from peercached.membership.former import FORMER_MAX, Former
from peercached.membership.links import Links
from peercached.membership.messages import (
    Action,
    Heartbeat,
    HeartbeatAnswer,
    Probe,
    PushView,
    SendBeat,
)
from peercached.membership.order import Order, masters_of
from peercached.membership.reach import ViewReach, sequence_within_reach
from peercached.membership.roster import Roster
from peercached.membership.signs import NEVER, OwnSign, Sign
from peercached.membership.state import NodeState, Phase
from peercached.membership.timing import Timing
from peercached.membership.updates import History, ViewUpdate
from peercached.membership.view import (
    NO_HEAD,
    Gone,
    Member,
    NodeAddress,
    State,
    Verdict,
    View,
)

# Scans for silent members per heartbeat interval.
SCANS = 4

_OF_MASTERS = (Verdict.ACCEPTED, Verdict.WAIT, Verdict.DUPLICATE)


class Membership:
    """Not thread safe; `now` is monotonic seconds, the same clock in all calls.

    `heads` are the endpoints of the heads in order, this node's own among them if it is a head; see
    heads_are(). `own_rank` is this node's place in discovery_addr, or None if it is no head, or
    does not know it yet. Without heads the node is a cluster of its own. `remembered` is the last
    view of an earlier start (store.py): it names former masters to ask, perhaps this node among
    them. `suspected`: see order.py.
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
        suspected: Container[NodeAddress] = (),
    ) -> None:
        self.address = address
        self._timing = timing
        self._clustered = bool(heads)
        own = Member(address, head_rank=NO_HEAD if own_rank is None else own_rank)
        self._state = NodeState(own, timing)
        self._roster = Roster(address.node_id, timing, rng, suspected)
        self._history = History()
        self.reach = ViewReach(timing.member_ttl_s, remembered.number if remembered else 0)
        self._asked_until = now  # for a newer view

        then = masters_of(remembered.members if remembered else (), FORMER_MAX)
        self._ages = Ages()
        self._has_false_ages = False
        if remembered is not None:
            self._ages.saw(remembered)
        self._former = Former(then, address.node_id, self._roster.table)
        self.links = Links(
            [head for head in heads if head != address.endpoint],
            [m.address.endpoint for m in then if m.address.endpoint != address.endpoint],
            timing,
            now,
            rng,
        )
        self._max_masters = max_masters
        self._suspected = suspected
        self._kept_order: Order | None = None
        # How many other nodes may begin a cluster before this one; None: it never may.
        self._cold_rank = own_rank
        ids = [m.node_id for m in then]
        if own_rank is None and address.node_id in ids:
            self._cold_rank = ids.index(address.node_id)
        if address.endpoint in heads:
            self._cold_rank = heads.index(address.endpoint)

        self._leads = False  # as a master; see _take_lead()
        self._scan_at = now
        self._made_at = float("-inf")  # the last view that we made
        self._dirty_since: float | None = None  # when the table began to differ from the view
        self._started = self._clock = now
        self.beats_sent = 0
        self.signs_counted = 0
        self._processes: tuple[View, dict[int, Member]] = (View.nothing(), {})

    @property
    def view(self) -> View:
        """The view in use: the newest that has this process. Number 0: none yet."""
        return self._state.view

    @property
    def latest(self) -> View:
        """The newest known view, perhaps without this process."""
        return self._history.newest

    @property
    def own(self) -> Member:
        return self._state.own

    @property
    def refused(self) -> str:
        """Why this node id cannot be a member; empty if it can."""
        return self._state.refused

    # --- time

    def _advance(self, now: float) -> None:
        """Detects that our own process was stopped: then the others were not silent."""
        gap_s, self._clock = now - self._clock, now
        if gap_s > self._timing.pause_s:
            self._roster.liveness.forgive(gap_s, now)
            self.links.forgive(gap_s)

    def tick(self, now: float) -> list[Action]:
        self._advance(now)
        if self._state.phase is Phase.LEFT or not self._clustered:
            return []
        self._aim(now)
        beats: list[Action] = []
        for link, with_view in self.links.due(now):
            update = self._update_for(0, now) if with_view and self.latest.number else None
            beats.append(SendBeat(link.endpoint, self._beat(update), link.former))
        self.beats_sent += len(beats)
        return beats + self._lead(now) + self._state.waited(now)

    def next_at(self, now: float) -> float:
        """The latest time for the next tick()."""
        interval_s = self._timing.heartbeat_interval_s
        at = min(now + interval_s, self.links.next_at(), self._state.holds_until)
        if self._leads:
            at = min(at, max(self._roster.liveness.next_at(), now + interval_s / SCANS))
            if self._dirty_since is not None:
                at = min(at, max(self._stamp_at(self._dirty_since, now), now + 0.001))
        return max(at, now)

    # --- the heads: their names may get other addresses

    def heads_are(self, places: Mapping[str, int], now: float) -> None:
        """The heads by endpoint, in order, each with its place in discovery_addr."""
        own = self.address.endpoint
        self.links.heads_are({head: at for head, at in places.items() if head != own}, now)
        if own in places:
            self._is_head(places[own], list(places).index(own), now)

    def led_home(self, endpoint: str, now: float) -> list[Action]:
        """This very process answered at that endpoint. So it is a head, although it did not know
        the address. Another node may answer next time, if a forwarder has the address."""
        self._advance(now)
        link = self.links.get(endpoint)
        self.links.failed(endpoint, f"{endpoint} leads back to this node", now)
        if link is not None and link.is_head:
            link.led_home = True
            self._is_head(link.place, link.place, now)
        return self._lead(now)

    def _is_head(self, rank: int, cold_rank: int, now: float) -> None:
        self._cold_rank = cold_rank
        if self.own.head_rank == NO_HEAD:  # else it stays at the place that the others know
            self._state.is_head(rank)
            self.links.beat_now(now)

    # --- masters

    @property
    def _order(self) -> Order:
        order, view, own = self._kept_order, self.latest, self.own
        if order is None or order.view is not view or order.own is not own:
            order = Order(view, own, self._max_masters, self._timing, self._suspected)
            self._kept_order = order
        return order

    def masters(self, now: float) -> tuple[Member, ...]:
        """The masters, in order, with the nodes that took over from silent ones (order.py)."""
        order = self._order
        return order.masters(self.links.silence_s(order.endpoints, now), now)

    def is_master(self, now: float) -> bool:
        if not self._clustered or self._state.phase in (Phase.REFUSED, Phase.LEFT):
            return False
        if any(link.says(Verdict.WAIT) for link in self.links):
            return False  # the other masters have not let it in yet
        if self.latest.number == 0:
            return self._cold_rank is not None
        return any(m.node_id == self.address.node_id for m in self.masters(now))

    def _aim(self, now: float) -> None:
        """Heartbeats go to the masters of the latest view, and to the heads. While no head answers,
        a master also asks former members. Only masters do: members that go over to another part
        one by one lose sight of each other for a moment."""
        if self.latest.number:
            others = (m for m in self.masters(now) if m.node_id != self.address.node_id)
            targets = ((m.node_id, m.address.endpoint) for m in others)
            to = [target for target in targets if target[1] != self.address.endpoint]
            alone = self.own.head_rank == NO_HEAD and not self.links.has_head
            former = self._former.addresses() if alone and self.is_master(now) else []
            former = [one for one in former if one.endpoint != self.address.endpoint]
            self.links.aim(to, former, now)

    # --- a master's duties

    def _take_lead(self, now: float) -> None:
        """Becomes a master if needed: enters itself into the table, and watches the others."""
        if not self._leads:
            self._leads = True
            self._roster.begin()
        table, own_id = self._roster.table, self.address.node_id
        if table.member(own_id) != self.own:
            newest = table.newest(own_id)
            if self.own.age <= newest:
                self._state.object(newest[0], now)
            table.take(self.own, now)
        self._roster.watch(now)

    def _lead(self, now: float) -> list[Action]:
        """Probes silent members, buries dead ones, and makes a view if the table has changed."""
        if not self.is_master(now):
            self._leads, self._dirty_since = False, None
            return []
        self._take_lead(now)
        actions: list[Action] = []
        if now >= self._scan_at:
            self._scan_at = now + self._timing.heartbeat_interval_s / SCANS
            patience_s = self._before_us(now) * self._timing.heartbeat_interval_s
            actions += self._roster.probes(self.masters(now), patience_s, now)
            self._roster.bury_dead(now)
        if not (self._roster.differs_from(self.latest) or self._must_correct_ages(now)):
            self._dirty_since = None
            return actions
        if self._dirty_since is None:
            self._dirty_since = now
        if now >= self._stamp_at(self._dirty_since, now):
            actions += self._stamp(now)
        return actions

    def _must_correct_ages(self, now: float) -> bool:
        """Only the first master does: two that differ would correct each other for ever."""
        is_due = self._has_false_ages and now - self._made_at >= self._timing.member_ttl_s
        return is_due and self.masters(now)[0].node_id == self.address.node_id

    def _before_us(self, now: float) -> int:
        """Number of answering masters before this one. They act first; this one waits."""
        answering = {link.responder for link in self.links if link.answered}
        before = takewhile(lambda m: m.node_id != self.address.node_id, self.masters(now))
        return sum(m.node_id in answering for m in before)

    def _stamp_at(self, dirty_since: float, now: float) -> float:
        """When this master may make a view of the table."""
        if self.view.number == 0 and not all(link.tried for link in self.links):
            # These may know of a cluster, or why this node must wait.
            return float("inf")
        timing, latest = self._timing, self.latest
        at = self._made_at + timing.view_spacing_s(len(self._roster.table))
        if self.reach.told > latest.number:  # get that newer view first, if possible
            at = max(at, self.reach.told_at + 2 * timing.heartbeat_interval_s)
        if latest.number == 0:
            return max(at, self._started + (self._cold_rank or 0) * timing.heartbeat_interval_s)
        # Later masters give earlier ones time to make the view: saves messages.
        return max(at, dirty_since + 0.5 * self._before_us(now) * timing.call_deadline_s)

    def _stamp(self, now: float) -> list[Action]:
        """Makes a view of the table and pushes it to all members, masters first."""
        before = self.latest.number
        members = tuple(self._roster.table.members())
        view = self.latest.next(members, self.reach.told, self._ages.of(members))
        self._made_at, self._dirty_since = now, None
        changed = self._adopt(view, now)
        beat = self._beat(self._update_for(before, now))
        first = {m.node_id for m in self.masters(now)}
        to = [m.address for m in view.members if m.node_id != self.address.node_id]
        to.sort(key=lambda address: address.node_id not in first)
        return [*changed, *(PushView(address, beat) for address in to)]

    # --- views

    def _beat(self, update: ViewUpdate | None = None) -> Heartbeat:
        return Heartbeat(self.own, self.latest.number, update)

    def _update_for(self, number: int, now: float) -> ViewUpdate:
        """The latest view, for a receiver that has view `number` (0: for any)."""
        update = self._history.update_for(number, self._roster.table, now)
        return update if update.base else replace(update, joins=self._roster.flapping.shared(now))

    def _adopt(self, view: View, now: float) -> list[Action]:
        self._roster.flapping.saw(self.latest, view, self._ages, now)
        self._former.saw(self.latest, view)
        self._has_false_ages = not self._ages.saw(view)
        self._history.add(view, self._roster.table.last_serial)
        return self._state.view_came(view, self._roster.table, now)

    def _learn(
        self, update: ViewUpdate, now: float, asked: bool = False, by_master: bool = True
    ) -> list[Action]:
        """`asked`: the update is part of an answer. `by_master`: it comes from a master."""
        view = self._resolve(update, now, asked)
        if view is None:
            return []
        roster = self._roster
        if asked:
            roster.flapping.learn(update.joins, now)
        is_master = self.is_master(now)
        if is_master:
            self._take_lead(now)
            roster.merge(view.members, update.gone, now, by_master)
        else:
            for tombstone in update.gone:
                roster.table.add_tombstone(tombstone, now)
        actions: list[Action] = []
        if view.number > self.latest.number:
            if not is_master:
                roster.table.only(view.members)
            actions += self._adopt(view, now)
            self._aim(now)
        gone = roster.table.gone(self.address.node_id)
        if gone is not None and self._state.is_accused(gone):
            self._object(gone.sequence, now)
        return actions

    def _resolve(self, update: ViewUpdate, now: float, asked: bool) -> View | None:
        """The view that `update` describes. None if its base is unknown, or if any number in it is
        out of reach (reach.py)."""
        known = self.latest.number
        if update.number == 0 or not self.reach.has(update.number, known, now, asked):
            return None
        told: list[Member | Gone] = [*update.members, *update.gone]
        if not all(self._sequence_within_reach(one.node_id, one.sequence) for one in told):
            self.reach.refuse(now)
            return None
        return self._history.resolve(update)

    def _sequence_within_reach(self, node_id: str, sequence: int) -> bool:
        own = self.own.sequence if node_id == self.address.node_id else -1
        known = max(own, self._roster.table.newest(node_id)[0])
        return sequence_within_reach(sequence, known)

    # --- what this node asks of the masters

    def answered(self, endpoint: str, answer: HeartbeatAnswer, now: float) -> list[Action]:
        self._advance(now)
        if self._state.phase is Phase.LEFT or not self.links.answered(endpoint, answer, now):
            return []
        first = self.links.verdict_of_first()
        if first is not None and first.verdict is Verdict.DUPLICATE:
            return self._state.refuse(first.problem)
        actions: list[Action] = []
        if answer.update is not None:
            actions += self._learn(answer.update, now, asked=True)
        if answer.accused and self.own.sequence <= answer.accused:
            if self._sequence_within_reach(self.address.node_id, answer.accused):
                self._object(answer.accused, now)
            else:
                self.reach.refuse(now)
        return actions + self._lead(now)

    def failed(
        self, endpoint: str, problem: str, now: float, refuses: bool = False
    ) -> list[Action]:
        self._advance(now)
        self.links.failed(endpoint, problem, now, refuses)
        return self._lead(now)

    def _object(self, sequence: int, now: float) -> None:
        """Refutes that we are dead. If we are a master, our heartbeats carry our view. Otherwise
        the members of our half of a partition would return one by one."""
        self._state.object(sequence, now)
        self.links.beat_now(now, with_view=self._leads)

    @property
    def settled(self) -> bool:
        """Whether start-up need not wait longer: we are in a view or refused, or nobody answers."""
        if self.view.number > 0 or self.refused or not self._clustered:
            return True
        promised = any(link.says(Verdict.WAIT, Verdict.ACCEPTED) for link in self.links)
        tried = all(link.tried for link in self.links)
        return tried and not promised and not self.is_master(self._clock)

    @property
    def waits(self) -> str:
        """Why a reachable master keeps this node out of the view; empty if none does so."""
        if self.view.number > 0:
            return ""
        asked = (k for k in self.links if k.says(*_OF_MASTERS))
        return next((k.reason or "it is not in a view yet" for k in asked), "")

    @property
    def outside(self) -> bool:
        """Whether this node is in no view of its cluster. Without heads it is a cluster alone."""
        return self._clustered and self.view.number == 0

    # --- what others ask of this node

    def on_heartbeat(self, beat: Heartbeat, now: float) -> tuple[HeartbeatAnswer, list[Action]]:
        self._advance(now)
        sender, own_id = beat.sender, self.address.node_id
        if sender.address.same_process(self.address):
            return HeartbeatAnswer(Verdict.NOT_A_MASTER, "", responder=own_id), []
        if sender.node_id == own_id:
            reason = taken(sender.address, self.address)
            return HeartbeatAnswer(Verdict.DUPLICATE, reason, responder=own_id), []
        actions: list[Action] = []
        if beat.update is not None:
            by_master = any(m.address.same_process(sender.address) for m in self.masters(now))
            actions += self._learn(beat.update, now, by_master=by_master)
        self.reach.hear_of(beat.view_number, self.latest.number, now)
        verdict, reason, accused = Verdict.NOT_A_MASTER, "", 0
        if not self._sequence_within_reach(sender.node_id, sender.sequence):
            self.reach.refuse(now)
            verdict = Verdict.WAIT
            reason = (
                f"sequence {sender.sequence} is far above the last known one of {sender.node_id}"
            )
        elif self.is_master(now):
            self._take_lead(now)
            verdict, reason, accused = self._roster.heard(sender, now)
            actions += self._lead(now)
        elif self.latest.number == 0:
            reason = (
                f"{own_id} does not know itself as a head: no entry of its discovery_addr "
                f"resolves there to {self.address.endpoint}"
            )
        number = self.latest.number
        update = self._update_for(beat.view_number, now) if number > beat.view_number else None
        wants = number < beat.view_number <= self.reach.told and now >= self._asked_until
        if wants:
            # Many senders know the newer view: ask one at a time.
            self._asked_until = now + self._timing.call_deadline_s
        return HeartbeatAnswer(verdict, reason, update, own_id, accused, wants), actions

    def just_heard(self, node: NodeAddress, now: float) -> bool:
        """Whether this node is a master, has just heard that very process, and reaches it."""
        heard = self._roster.liveness.hears(node, self._timing.trust_s, now)
        return heard and self.is_master(now) and node not in self._suspected

    def probed(self, probe: Probe, alive: bool, now: float) -> list[Action]:
        self._advance(now)
        if alive:
            self._roster.mute.answers(probe.target.node_id)
        self._roster.liveness.probed(probe.target.node_id, probe.round, alive, now)
        return self._lead(now)

    # --- signs of life

    def own_sign(self, now: float) -> OwnSign:
        """The sign to send until the next tick."""
        silent = self._state.phase in (Phase.REFUSED, Phase.LEFT)
        if silent or not self.latest.has(self.address):
            return OwnSign()
        return OwnSign(self.latest.number, self.own.sequence, self.is_master(now))

    def hear(self, signs: Iterable[Sign], now: float) -> None:
        """Takes the signs received since the last call. Call it before tick()."""
        self._advance(now)
        if self._state.phase is Phase.LEFT or not self.latest.has(self.address):
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
            if self._leads and not self._roster.ignores(member.address, now):
                self._roster.liveness.gave_sign(member.node_id, sign.incarnation, sign.at)
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
        if self._state.phase is Phase.LEFT:
            return []
        view = self._last_view(State.LEFT, now)
        beat = self._beat()
        return [*(SendBeat(k.endpoint, beat) for k in self.links if k.answered), *view]

    def _last_view(self, state: State, now: float) -> list[Action]:
        """Takes the new state. A master makes a view of it now: later it may be no master, and
        there may be no other."""
        master = self.is_master(now) and self.latest.number > 0
        self._state.announce(state)
        if not master:
            return []
        self._roster.table.take(self.own, now)
        return self._stamp(now)

    # --- for status

    def has_left(self, node_id: str, incarnation: int) -> bool:
        """Whether that process has said goodbye."""
        gone = self._roster.table.gone(node_id)
        return gone is not None and (gone.incarnation, gone.state) == (incarnation, State.LEFT)

    def silence_s(self, now: float) -> dict[str, float]:
        """Seconds since each member was last heard; empty if this node is no master."""
        return self._roster.liveness.silence_s(now) if self.is_master(now) else {}

    def mute(self, now: float) -> list[NodeAddress]:
        """Processes that this master keeps out: they answer no call (mute.py)."""
        return self._roster.mute.out(now)

    def endpoints(self) -> set[str]:
        """The endpoints that get heartbeats of this node."""
        return {link.endpoint for link in self.links}
