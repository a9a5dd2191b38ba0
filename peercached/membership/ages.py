"""How old each process is: the counter of the first view that had it.

The age of a member decides whether it owns records (directory/owner_choice.py), so no claim of its
own counts. The node that makes a view writes down the ages, from what it has seen itself. A process
that it sees for the first time is as old as the view.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from peercached.membership.view import MEMBERS_MAX, Member, NodeAddress, View

# Masters that take a process in at the same time may differ by so many views.
TOLERANCE = 4


class Ages:
    """The members that this node has seen, with their ages. A view told by others is believed of
    new processes only: any member can make up a view. Not thread safe."""

    def __init__(self) -> None:
        self._first: dict[str, tuple[NodeAddress, int]] = {}  # of each node id's last process

    def saw(self, view: View) -> bool:
        """Whether the view agrees with what we knew."""
        agrees = True
        for member in view.members:
            known = self._known(member)
            told = view.since.get(member.node_id, view.counter)
            if known is None:
                self._first[member.node_id] = (member.address, min(told, view.counter))
            elif abs(known - told) > TOLERANCE:
                agrees = False
        if len(self._first) > 2 * MEMBERS_MAX:
            self._first = {n: first for n, first in self._first.items() if n in view.by_id}
        return agrees

    def of(self, members: Iterable[Member]) -> Mapping[str, int]:
        """By node id; without those that we have not seen."""
        found = ((member.node_id, self._known(member)) for member in members)
        return {node_id: since for node_id, since in found if since is not None}

    def has_seen(self, member: Member) -> bool:
        """Whether that process was in an earlier view."""
        return self._known(member) is not None

    def _known(self, member: Member) -> int | None:
        first = self._first.get(member.node_id)
        return first[1] if first is not None and first[0].same_process(member.address) else None
