"""Former members, which may live on in another part of the cluster.

Parts of a cluster meet through the heads. While no head answers, each master also asks a few nodes
that it has lost without a goodbye, and former masters that an earlier start remembered. Otherwise
parts that lost sight of each other would stay apart until a head is back.

A heartbeat goes to such a node only if the node proves the same node id and key: another cluster
may have its address by now.
"""

from __future__ import annotations

from collections.abc import Sequence

from peercached.membership.order import masters_of
from peercached.membership.table import Table
from peercached.membership.view import Member, NodeAddress, State, View

FORMER_MAX = 8


class Former:
    """Not thread safe. `remembered`: the members of the last view of an earlier start. `table` has
    the tombstones."""

    def __init__(self, remembered: Sequence[Member], own_id: str, table: Table) -> None:
        self._table = table
        others = [member for member in remembered if member.node_id != own_id]
        self._by_id = {m.node_id: m.address for m in masters_of(others, FORMER_MAX)}

    def saw(self, before: View, after: View) -> None:
        """The next view."""
        lost = [member for member in before.members if member.node_id not in after.by_id]
        for member in masters_of(lost, FORMER_MAX):
            self._by_id.pop(member.node_id, None)
            self._by_id[member.node_id] = member.address
        for node_id in list(self._by_id):
            if node_id in after.by_id or self._has_left(node_id):
                del self._by_id[node_id]
        for oldest in list(self._by_id)[:-FORMER_MAX]:
            del self._by_id[oldest]

    def _has_left(self, node_id: str) -> bool:
        tombstone = self._table.gone(node_id)
        return tombstone is not None and tombstone.state is State.LEFT

    def addresses(self) -> list[NodeAddress]:
        return list(self._by_id.values())
