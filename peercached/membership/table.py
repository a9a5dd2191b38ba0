"""The newest record of every node id, merged from the news of all nodes.

For each node id the greatest `age` (sequence, incarnation, state) wins: a join semilattice. So
masters that hear the same news end with the same table, in whatever order and however often.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from peercached.membership.view import MEMBERS_MAX, Gone, Member, State


@dataclass(slots=True)
class _Grave:
    gone: Gone
    since: float
    serial: int


class Table:
    """Members, and graves (tombstones). Not thread safe; `now` is monotonic seconds."""

    def __init__(self, remember_gone_s: float) -> None:
        self._remember_s = remember_gone_s
        self._members: dict[str, Member] = {}
        self._graves: dict[str, _Grave] = {}
        self.changes = 0  # counts changes of the members
        self.burials = 0

    def member(self, node_id: str) -> Member | None:
        return self._members.get(node_id)

    def gone(self, node_id: str) -> Gone | None:
        grave = self._graves.get(node_id)
        return None if grave is None else grave.gone

    def members(self) -> Iterable[Member]:
        return self._members.values()

    def __len__(self) -> int:
        return len(self._members)

    def newest(self, node_id: str) -> tuple[int, int, int]:
        """The age of our record of that node id; (-1, 0, 0): we have none."""
        member, grave = self._members.get(node_id), self._graves.get(node_id)
        if member is not None:
            return member.age
        return (-1, 0, 0) if grave is None else grave.gone.age

    def take(self, member: Member, now: float) -> bool:
        """Merges a record; True if it was news. A record with state DEAD or LEFT becomes a grave. A
        new node id does not fit into a full table."""
        node_id = member.address.node_id
        if member.age <= self.newest(node_id):
            return False
        if member.state >= State.DEAD:
            address = member.address
            grave = Gone(
                node_id, address.incarnation, member.sequence, member.state, key=address.key
            )
            return self.bury(grave, now)
        if node_id not in self._members and len(self._members) >= MEMBERS_MAX:
            return False
        self._members[node_id] = member
        self._graves.pop(node_id, None)
        self.changes += 1
        return True

    def bury(self, gone: Gone, now: float) -> bool:
        """Merges a grave; True if it was news. It carries its age, not a time: clocks differ."""
        if gone.age <= self.newest(gone.node_id) or gone.age_s > self._remember_s:
            return False
        self.changes += self._members.pop(gone.node_id, None) is not None
        self.burials += 1
        self._graves[gone.node_id] = _Grave(gone, now - gone.age_s, self.burials)
        if len(self._graves) > MEMBERS_MAX:
            del self._graves[min(self._graves, key=lambda n: self._graves[n].since)]
        return True

    def only(self, members: Iterable[Member]) -> None:
        """Replaces all members: a node that is no master trusts the view alone."""
        self._members = {m.address.node_id: m for m in members}
        for node_id in self._members:
            self._graves.pop(node_id, None)
        self.changes += 1

    def graves(
        self, now: float, since_burial: int = 0, also: Collection[str] = ()
    ) -> tuple[Gone, ...]:
        """Graves after burial number `since_burial`, and those of the node ids in `also`. Drops
        expired graves."""
        old = [n for n, g in self._graves.items() if now - g.since > self._remember_s]
        for node_id in old:
            del self._graves[node_id]
        return tuple(
            replace(g.gone, age_s=now - g.since)
            for g in self._graves.values()
            if g.serial > since_burial or g.gone.node_id in also
        )
