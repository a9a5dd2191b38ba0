"""From the keys in etcd to views: sans-I/O.

Each node has a key `PREFIX/nodes/NODE_ID`, under its lease, with its Member as value. The counter
of a view is the revision of the last change under `PREFIX/nodes/`, so that all nodes that have seen
the same changes have the same view under the same number. Only changes that are *seen* count: a
node that comes (again) reads the keys, then writes its own, and everybody sees that.
"""

from __future__ import annotations

from collections.abc import Iterable

from peercached.membership.view import MARK_BITS, MEMBERS_MAX, Member, View, mark_of


class EtcdView:
    """Not thread safe."""

    def __init__(self) -> None:
        self._members: dict[str, Member] = {}
        self.revision = 0  # of the last change seen
        self.refused = 0  # members beyond the limit

    def reset(self, members: Iterable[Member]) -> None:
        """What the keys hold now; the next change makes a view of it."""
        self._members = {}
        for member in members:
            self._put(member)

    def put(self, member: Member, revision: int) -> None:
        self._put(member)
        self.revision = max(self.revision, revision)

    def _put(self, member: Member) -> None:
        if member.node_id not in self._members and len(self._members) >= MEMBERS_MAX:
            self.refused += 1
            return
        self._members[member.node_id] = member

    def delete(self, node_id: str, revision: int) -> None:
        self._members.pop(node_id, None)
        self.revision = max(self.revision, revision)

    def member(self, node_id: str) -> Member | None:
        return self._members.get(node_id)

    def view(self) -> View:
        view = View.of(0, self._members.values())
        number = self.revision << MARK_BITS | mark_of(view.members)
        return View(number, view.members, view.by_id)
