"""Former members, which may live on in another part of the cluster.

Parts of a cluster meet through the heads. While no head answers, each master also asks a few nodes
that it has lost without a goodbye, and former masters that an earlier start remembered. Otherwise
parts that lost sight of each other would stay apart until a head is back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from peercached.membership.order import masters_of
from peercached.membership.view import Gone, Member, State, View

FORMER_MAX = 8


class Former:
    """Not thread safe. `remembered`: the members of the last view of an earlier start."""

    def __init__(self, remembered: Sequence[Member], own_id: str) -> None:
        others = [member for member in remembered if member.node_id != own_id]
        self._endpoints = {m.node_id: m.address.endpoint for m in masters_of(others, FORMER_MAX)}

    def saw(self, before: View, after: View, gone: Callable[[str], Gone | None]) -> None:
        """The next view. `gone`: the tombstone of a node id."""
        for node_id in after.by_id:
            self._endpoints.pop(node_id, None)
        lost = []
        for member in before.members:
            if member.node_id in after.by_id:
                continue
            tombstone = gone(member.node_id)
            if tombstone is None or tombstone.state is not State.LEFT:
                lost.append(member)
        for member in masters_of(lost, FORMER_MAX):
            self._endpoints.pop(member.node_id, None)
            self._endpoints[member.node_id] = member.address.endpoint
        for oldest in list(self._endpoints)[:-FORMER_MAX]:
            del self._endpoints[oldest]

    def endpoints(self) -> list[str]:
        return list(self._endpoints.values())
