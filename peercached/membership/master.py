"""How a master updates the table: from heartbeats, news of other masters, and silence."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace

from peercached.membership.claims import Claims
from peercached.membership.flapping import Flapping, waits_because
from peercached.membership.liveness import Liveness
from peercached.membership.messages import Probe
from peercached.membership.table import Table
from peercached.membership.timing import Timing
from peercached.membership.view import MEMBERS_MAX, Gone, Member, NodeAddress, State, Verdict

# Members that probe a silent one on the master's behalf, beside its own probe.
PROBERS = 3
# Bounds the probes of one scan: when a whole rack dies, several scans probe it. Rounds end by
# themselves, so only the probes of a few scans are ever in flight (master_role.py, SCANS).
PROBES_AT_ONCE_MAX = 256


class Master:
    """Changes the table; master_role.py makes views of it. Not thread safe; `now` is monotonic
    seconds."""

    def __init__(
        self, own_id: str, table: Table, timing: Timing, flapping: Flapping, rng: random.Random
    ) -> None:
        self._own_id = own_id
        self._table = table
        self._flapping = flapping
        self._claims = Claims(timing)
        self._rng = rng
        self._timing = timing
        self.liveness = Liveness(timing)
        self._watched = -1

    def begin(self) -> None:
        """This node becomes a master (again): forget silence from before."""
        self.liveness = Liveness(self._timing)
        self._watched = -1

    def watch(self, now: float) -> None:
        """Watches the members of the table. A new one gets a whole TTL."""
        if self._watched != self._table.changes:
            self._watched = self._table.changes
            self.liveness.watch(self._table.members(), self._own_id, now)

    def heard(self, sender: Member, now: float) -> tuple[Verdict, str, int]:
        """Judges a heartbeat: (verdict, reason unless ACCEPTED, accused). `accused` is the sequence
        up to which we hold the sender dead; 0: we do not."""
        address, node_id = sender.address, sender.address.node_id
        member = self._table.member(node_id)
        if member is not None and member.address.same_process(address):
            self.liveness.heard(node_id, address.incarnation, now)
            self._table.take(sender, now)
            return Verdict.ACCEPTED, "", 0
        if sender.state is State.LEFT:
            return Verdict.ACCEPTED, "", 0
        gone = self._table.gone(node_id)
        if member is not None:
            heard = self.liveness.last_heard(node_id)
            verdict, reason = self._claims.judge(address, member.address, heard, now)
            if verdict is not Verdict.ACCEPTED:
                return verdict, reason, 0
        elif gone is not None and gone.incarnation == address.incarnation:
            if gone.key != address.key:
                return Verdict.DUPLICATE, "it shows another key than who had its name", 0
            if gone.state is State.LEFT:
                return Verdict.WAIT, "it has said that it leaves", 0
            if sender.sequence <= gone.sequence:
                # Perhaps a late message of a dead process. A live one will object.
                return Verdict.WAIT, "it was found silent", max(gone.sequence, 1)
            self.liveness.ask_again(now)
        wait_s = self._flapping.wait_s(node_id, address.incarnation, now)
        if wait_s > 0:
            if member is not None:
                self._void(member, now)
            return Verdict.WAIT, waits_because(node_id, wait_s), 0
        newest = member.sequence if member is not None else gone.sequence if gone else -1
        joined = replace(sender, sequence=max(sender.sequence, newest + 1))
        if not self._table.take(joined, now):
            return Verdict.WAIT, f"the cluster has its maximum of {MEMBERS_MAX} members", 0
        self.liveness.heard(node_id, address.incarnation, now)
        return Verdict.ACCEPTED, "", 0

    def _void(self, member: Member, now: float) -> None:
        address = member.address
        self._table.add_tombstone(
            Gone(
                address.node_id,
                address.incarnation,
                member.sequence,
                State.DEAD,
                key=address.key,
            ),
            now,
        )

    def told(
        self, members: Iterable[Member], gone: Iterable[Gone], now: float, by_master: bool = True
    ) -> None:
        """Merges news of another master (`by_master`), or of a member that knows a newer view.

        A fresh direct heartbeat overrides another master's death report. Otherwise two halves of a
        partition would lose members when they meet: each master has found the other half dead. For
        the same reason news cannot change the key or address of a member that we hear ourselves.
        News of a goodbye overrides our own heartbeats only if it comes from a master."""
        for record in members:
            member = self._table.member(record.node_id)
            if (
                member is not None
                and record.age > member.age
                and _contradicts(record.address, member.address)
                and self.liveness.hears(member.node_id, member.address.incarnation, now)
            ):
                self._table.take(replace(member, sequence=record.sequence + 1), now)
            else:
                self._table.take(record, now)
        for tombstone in gone:
            member = self._table.member(tombstone.node_id)
            if (
                member is not None
                and (tombstone.state is State.DEAD or not by_master)
                and tombstone.age > member.age
                and self.liveness.hears(tombstone.node_id, tombstone.incarnation, now)
            ):
                self._table.take(replace(member, sequence=tombstone.sequence + 1), now)
            else:
                self._table.add_tombstone(tombstone, now)

    def probes(self, masters: Iterable[Member], patience_s: float, now: float) -> list[Probe]:
        """Probes of silent members. `patience_s`: how much longer than the first master this one
        waits, so that not all masters probe at once."""
        actions: list[Probe] = []
        for node_id in self.liveness.due(now, patience_s):
            if len(actions) >= PROBES_AT_ONCE_MAX:
                break
            target = self._table.member(node_id)
            if target is None:
                continue
            vias = self._vias(node_id, masters)
            number = self.liveness.begin(node_id, 1 + len(vias), now)
            actions.append(Probe(target.address, None, number))
            actions += [Probe(target.address, via, number) for via in vias]
        return actions

    def _vias(self, target: str, masters: Iterable[Member]) -> list[NodeAddress]:
        """Members that probe for us. Masters first: they get its heartbeats, too. No suspects."""
        avoid = {target, self._own_id, *self.liveness.suspects()}
        first = [m.address for m in masters if m.address.node_id not in avoid][:PROBERS]
        avoid.update(address.node_id for address in first)
        others = list(self._table.members())
        for _ in range(4 * PROBERS):
            if len(first) >= PROBERS or not others:
                break
            address = self._rng.choice(others).address
            if address.node_id not in avoid:
                first.append(address)
                avoid.add(address.node_id)
        return first

    def declare_dead(self, now: float) -> None:
        for node_id in self.liveness.dead(now):
            member = self._table.member(node_id)
            if member is not None:
                self._void(member, now)


def _contradicts(told: NodeAddress, known: NodeAddress) -> bool:
    """A node keeps its key, and one incarnation keeps its address."""
    same_start = told.incarnation == known.incarnation
    return told.key != known.key or (same_start and told != known)
