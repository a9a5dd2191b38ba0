"""The members as this node knows them: what a master changes on heartbeats, news and silence."""

from __future__ import annotations

import logging
import random
from collections.abc import Container, Iterable
from dataclasses import replace

from peercached.membership.claims import Claims
from peercached.membership.flapping import Flapping, waits_because
from peercached.membership.liveness import Liveness
from peercached.membership.messages import Probe
from peercached.membership.mute import Mute
from peercached.membership.patience import Patience
from peercached.membership.table import Table
from peercached.membership.timing import Timing
from peercached.membership.view import MEMBERS_MAX, Gone, Member, NodeAddress, State, Verdict, View

log = logging.getLogger(__name__)

# Members that probe a silent one on the master's behalf, beside its own probe.
PROBERS = 3
# Bounds the probes of one scan: when a whole rack dies, several scans probe it. Rounds end by
# themselves, so only the probes of a few scans are ever in flight (membership.py, SCANS).
PROBES_AT_ONCE_MAX = 256


class Roster:
    """Owns the table, the failure detector, the claims and the counts of joins. A node that is no
    master keeps the members of the newest view, tombstones and counts. Not thread safe; `now` is
    monotonic seconds."""

    def __init__(
        self,
        own_id: str,
        timing: Timing,
        rng: random.Random,
        suspected: Container[NodeAddress] = (),
    ) -> None:
        self.table = Table(timing.remember_gone_s)
        self.patience = Patience(timing)
        self.flapping = Flapping(timing, self.patience)
        self.liveness = Liveness(timing, self.patience)
        self.mute = Mute(timing, suspected)
        self._claims = Claims(timing)
        self._own_id = own_id
        self._suspected = suspected
        self._rng = rng
        self._timing = timing
        self._watched = -1  # table.changes as last watched
        self._compared = ((-1, -1), False)  # table.changes and view number as last compared

    def begin(self) -> None:
        """This node becomes a master (again): forget silence from before."""
        self.liveness = Liveness(self._timing, self.patience)
        self.mute = Mute(self._timing, self._suspected)
        self._watched = -1

    def watch(self, now: float) -> None:
        """Watches the members of the table. A new one gets a whole TTL."""
        if self._watched != self.table.changes:
            self._watched = self.table.changes
            self.liveness.watch(self.table.members(), self._own_id, now)

    def differs_from(self, view: View) -> bool:
        of = (self.table.changes, view.number)
        if self._compared[0] != of:
            differs = {m.node_id: m for m in self.table.members()} != view.by_id
            self._compared = (of, differs)
        return self._compared[1]

    def heard(self, sender: Member, now: float) -> tuple[Verdict, str, int]:
        """Judges a heartbeat: (verdict, reason unless ACCEPTED, accused). `accused` is the last
        sequence of the sender that we hold dead; 0: none."""
        address, node_id = sender.address, sender.node_id
        member, gone = self.table.member(node_id), self.table.gone(node_id)
        if member is not None and member.address.same_process(address):
            if not self.ignores(address, now):
                self.liveness.heard(node_id, address.incarnation, now)
            self.table.take(sender, now)
            return Verdict.ACCEPTED, "", 0
        if sender.state is State.LEFT:
            return Verdict.ACCEPTED, "", 0
        if self.mute.is_out(address):
            self.mute.knocks(address, now)
            return Verdict.WAIT, f"its heartbeats come, but nobody reaches {address.endpoint}", 0
        if member is not None:
            heard = self.liveness.last_heard(node_id)
            verdict, reason = self._claims.judge(address, member.address, heard, now)
            if verdict is not Verdict.ACCEPTED:
                return verdict, reason, 0
        elif gone is not None and gone.incarnation == address.incarnation:
            if gone.key != address.key:
                return Verdict.DUPLICATE, "its node id had another key before", 0
            if gone.state is State.LEFT:
                return Verdict.WAIT, "it has said that it leaves", 0
            if sender.sequence <= gone.sequence:
                # Perhaps a late message of a dead process. A live one will object.
                return Verdict.WAIT, "it was found silent", max(gone.sequence, 1)
            self.liveness.ask_again(now)
        wait_s = self.flapping.wait_s(node_id, address.incarnation, now)
        if wait_s > 0:
            self._bury(node_id, now)
            return Verdict.WAIT, waits_because(node_id, wait_s), 0
        joined = replace(sender, sequence=max(sender.sequence, self.table.newest(node_id)[0] + 1))
        if not self.table.take(joined, now):
            return Verdict.WAIT, f"the cluster has its maximum of {MEMBERS_MAX} members", 0
        self.liveness.heard(node_id, address.incarnation, now)
        return Verdict.ACCEPTED, "", 0

    def ignores(self, member: NodeAddress, now: float) -> bool:
        """Whether a sign of life of this member does not count (mute.py). They all count while this
        node reaches no other member: then its own network may be at fault."""
        return self.mute.is_mute(member, now) and any(
            other.node_id not in (self._own_id, member.node_id)
            and other.address not in self._suspected
            for other in self.table.members()
        )

    def merge(
        self, members: Iterable[Member], gone: Iterable[Gone], now: float, by_master: bool = True
    ) -> None:
        """Merges news of another master (`by_master`), or of a member that knows a newer view.

        A fresh direct heartbeat overrides another master's death report. Otherwise two halves of a
        partition would lose members when they meet: each master has found the other half dead. For
        the same reason news cannot change the key or address of a member that we hear ourselves.
        News of a goodbye overrides our own heartbeats only if it comes from a master."""
        records: list[Member | Gone] = [*members, *gone]
        for record in records:
            known = self.table.member(record.node_id)
            if (
                known is not None
                and record.age > known.age
                and _contradicts(record, known.address, by_master)
                and self.liveness.hears(known.address, self._timing.suspect_after_s, now)
            ):
                self.table.take(replace(known, sequence=record.sequence + 1), now)
            elif isinstance(record, Member):
                # A master that reaches a member takes it in for all.
                is_out = self.mute.is_out(record.address)
                if (by_master or not is_out) and self.table.take(record, now) and is_out:
                    self.mute.answers(record.node_id)
            elif self.table.add_tombstone(record, now) and record.state is State.DEAD:
                self.mute.died(record.node_id, now)

    def probes(self, masters: Iterable[Member], patience_s: float, now: float) -> list[Probe]:
        """Probes of silent members. `patience_s`: how much longer than the first master this one
        waits, so that not all masters probe at once."""
        actions = [Probe(address, None, 0) for address in self.mute.to_probe()]
        for node_id in self.liveness.due(now, patience_s):
            if len(actions) >= PROBES_AT_ONCE_MAX:
                break
            target = self.table.member(node_id)
            if target is None:
                continue
            vias = self._vias(node_id, masters)
            number = self.liveness.begin(node_id, 1 + len(vias), now)
            actions += [Probe(target.address, via, number) for via in (None, *vias)]
        return actions

    def _vias(self, target: str, masters: Iterable[Member]) -> list[NodeAddress]:
        """Members that probe for us. Masters first: they get its heartbeats, too. No suspects."""
        avoid = {target, self._own_id, *self.liveness.suspects()}
        reached = (m for m in masters if m.address not in self._suspected)
        first = [m.address for m in reached if m.node_id not in avoid][:PROBERS]
        avoid.update(address.node_id for address in first)
        others = list(self.table.members())
        for _ in range(4 * PROBERS):
            if len(first) >= PROBERS or not others:
                break
            address = self._rng.choice(others).address
            if address.node_id not in avoid and address not in self._suspected:
                first.append(address)
                avoid.add(address.node_id)
        return first

    def bury_dead(self, now: float) -> None:
        for node_id in self.liveness.dead(now):
            silent_s = now - self.liveness.last_heard(node_id)
            if self.mute.died(node_id, now):
                log.warning("%s sends heartbeats but answers no call: it is put out", node_id)
            else:
                log.warning("%s is dead: nobody heard of it for %.1f s", node_id, silent_s)
            self._bury(node_id, now)

    def _bury(self, node_id: str, now: float) -> None:
        member = self.table.member(node_id)
        if member is not None:
            self.table.take(replace(member, state=State.DEAD), now)


def _contradicts(record: Member | Gone, known: NodeAddress, by_master: bool) -> bool:
    """Whether the record denies a process that lives. A node keeps its key, and one incarnation
    keeps its address."""
    if isinstance(record, Gone):
        lives_on = record.incarnation == known.incarnation
        return lives_on and (record.state is State.DEAD or not by_master)
    told = record.address
    return told.key != known.key or (told.incarnation == known.incarnation and told != known)
