"""What is known of every node id, merged from everybody who tells.

For each node id the greatest `age` (sequence, incarnation, state) wins: a join semilattice, so
masters that hear the same news in whatever order, and how often ever, end with the same table.
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
    """Members and those who are gone. Not thread safe; `now` is monotonic seconds."""

    def __init__(self, remember_gone_s: float) -> None:
        self._remember_s = remember_gone_s
        self._members: dict[str, Member] = {}
        self._graves: dict[str, _Grave] = {}
        self.changes = 0  # of the members
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
        """The age of what is known; (-1, 0, 0): nothing."""
        member, grave = self._members.get(node_id), self._graves.get(node_id)
        if member is not None:
            return member.age
        return (-1, 0, 0) if grave is None else grave.gone.age

    def take(self, member: Member, now: float) -> bool:
        """True if that was news. A member whose state says that it is gone is buried."""
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
        """True if that was news. Ages travel instead of times, so that clocks need not agree."""
        if gone.age <= self.newest(gone.node_id) or gone.age_s > self._remember_s:
            return False
        self.changes += self._members.pop(gone.node_id, None) is not None
        self.burials += 1
        self._graves[gone.node_id] = _Grave(gone, now - gone.age_s, self.burials)
        if len(self._graves) > MEMBERS_MAX:
            del self._graves[min(self._graves, key=lambda n: self._graves[n].since)]
        return True

    def only(self, members: Iterable[Member]) -> None:
        """A node that is no master knows of members what the view says, no more."""
        self._members = {m.address.node_id: m for m in members}
        for node_id in self._members:
            self._graves.pop(node_id, None)
        self.changes += 1

    def graves(
        self, now: float, since_burial: int = 0, also: Collection[str] = ()
    ) -> tuple[Gone, ...]:
        """Who is gone, of the burials after that one, and of those; forgets what is too old."""
        old = [n for n, g in self._graves.items() if now - g.since > self._remember_s]
        for node_id in old:
            del self._graves[node_id]
        return tuple(
            replace(g.gone, age_s=now - g.since)
            for g in self._graves.values()
            if g.serial > since_burial or g.gone.node_id in also
        )
