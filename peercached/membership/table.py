"""The newest record of every node id, merged from the news of all nodes.

For each node id the greatest `age` (sequence, incarnation, state) wins: a join semilattice. So
masters that hear the same news end with the same table, in whatever order and however often.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from peercached.membership.view import MEMBERS_MAX, Gone, Member, State


@dataclass(slots=True)
class _Tombstone:
    gone: Gone
    since: float
    serial: int


class Table:
    """Members, and tombstones of former ones. Not thread safe; `now` is monotonic seconds."""

    def __init__(self, remember_gone_s: float) -> None:
        self._remember_s = remember_gone_s
        self._members: dict[str, Member] = {}
        self._tombstones: dict[str, _Tombstone] = {}
        self.changes = 0  # counts changes of the members
        self.last_serial = 0

    def member(self, node_id: str) -> Member | None:
        return self._members.get(node_id)

    def gone(self, node_id: str) -> Gone | None:
        tombstone = self._tombstones.get(node_id)
        return None if tombstone is None else tombstone.gone

    def members(self) -> Iterable[Member]:
        return self._members.values()

    def __len__(self) -> int:
        return len(self._members)

    def newest(self, node_id: str) -> tuple[int, int, int]:
        """The age of our record of that node id; (-1, 0, 0): we have none."""
        member, tombstone = self._members.get(node_id), self._tombstones.get(node_id)
        if member is not None:
            return member.age
        return (-1, 0, 0) if tombstone is None else tombstone.gone.age

    def take(self, member: Member, now: float) -> bool:
        """Merges a record; True if it was news. State DEAD or LEFT makes it a tombstone. A
        new node id does not fit into a full table."""
        node_id = member.address.node_id
        if member.age <= self.newest(node_id):
            return False
        if member.state >= State.DEAD:
            address = member.address
            tombstone = Gone(
                node_id, address.incarnation, member.sequence, member.state, key=address.key
            )
            return self.add_tombstone(tombstone, now)
        if node_id not in self._members and len(self._members) >= MEMBERS_MAX:
            return False
        self._members[node_id] = member
        self._tombstones.pop(node_id, None)
        self.changes += 1
        return True

    def add_tombstone(self, gone: Gone, now: float) -> bool:
        """Merges a tombstone; True if it was news. It has an age, not a time: clocks differ."""
        if gone.age <= self.newest(gone.node_id) or gone.age_s > self._remember_s:
            return False
        self.changes += self._members.pop(gone.node_id, None) is not None
        self.last_serial += 1
        self._tombstones[gone.node_id] = _Tombstone(gone, now - gone.age_s, self.last_serial)
        if len(self._tombstones) > MEMBERS_MAX:
            del self._tombstones[min(self._tombstones, key=lambda n: self._tombstones[n].since)]
        return True

    def only(self, members: Iterable[Member]) -> None:
        """Replaces all members: a node that is no master trusts the view alone."""
        self._members = {m.address.node_id: m for m in members}
        for node_id in self._members:
            self._tombstones.pop(node_id, None)
        self.changes += 1

    def tombstones(
        self, now: float, serial: int = 0, also: Collection[str] = ()
    ) -> tuple[Gone, ...]:
        """Tombstones with a higher serial number, and those of the node ids in `also`. Drops
        expired tombstones."""
        old = [n for n, g in self._tombstones.items() if now - g.since > self._remember_s]
        for node_id in old:
            del self._tombstones[node_id]
        return tuple(
            replace(g.gone, age_s=now - g.since)
            for g in self._tombstones.values()
            if g.serial > serial or g.gone.node_id in also
        )
