"""Membership's part of the status document and its health findings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from peercached.component import Component, Stats
from peercached.directory.placement import Placement
from peercached.health import Say
from peercached.peer.membership.cluster import Cluster

if TYPE_CHECKING:
    from peercached._native import Engine


@dataclass(eq=False)
class MembershipStatus(Component):
    _engine: Engine
    _placement: Placement
    _cluster: Cluster
    _heads: Sequence[str]

    def sections(self, stats: Stats) -> dict[str, Any]:
        del stats
        return {
            "membership": {
                "view_number": self._placement.view.counter,
                "view_mark": self._placement.view.mark,
                "heads": self._heads,
                **self._cluster.document(),
                "members": self.members(),
            }
        }

    def say(self, say: Say, stats: Stats) -> None:
        del stats
        self._cluster.say(say)

    def members(self) -> list[dict[str, Any]]:
        """The view's members (admin/status.py's Member), ascending by node id."""
        placement = self._placement
        shares = dict(self._engine.ring_shares())
        return [
            {
                "node_id": node.address.node_id,
                "incarnation": node.address.incarnation,
                "host": node.address.host,
                "peer_port": node.address.peer_port,
                "data_port": node.address.data_port,
                "pool_bytes": node.address.pool_bytes,
                "transports": [name for name, _ in node.address.transports],
                "protocol": ""
                if node is placement.own
                else placement.own.address.transport_to(node.address),
                "suspect": node.suspect,
                "state": "leaving" if node.leaving else "alive",
                "is_self": node is placement.own,
                "ring_share": shares.get(node.index, 0.0),
            }
            for node in sorted(placement.nodes.values(), key=lambda n: n.address.node_id)
        ]
