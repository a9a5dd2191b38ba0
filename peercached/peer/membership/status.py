"""Membership's part of the status document and its health findings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from peercached.component import Component, Stats
from peercached.directory.placement import Placement
from peercached.health import Say, kinds
from peercached.peer.membership.cluster import Cluster

if TYPE_CHECKING:
    from peercached._native import Engine

# Pages compared with a node, and the shares of them that differ, before a node is named.
COMPARED_MIN = 64
ALIKE, OTHER = 0.1, 0.5
NOT_COMPARED = {"keys_compared": 0, "keys_differed": 0}


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
        self._say_who_sets_other_bytes(say)

    def _say_who_sets_other_bytes(self, say: Say) -> None:
        """Names members with other bytes than ours under the same keys, if as many members have the
        same. With some kernels the bytes depend on the batch, so all differ: no fault of a node."""
        counts = {index: (c, d) for index, c, d in self._engine.same_keys() if c >= COMPARED_MIN}
        counts.pop(self._placement.own.index, None)
        alike = [index for index, (c, d) in counts.items() if d <= ALIKE * c]
        others = [index for index, (c, d) in counts.items() if d >= OTHER * c]
        if len(others) > len(alike):
            return
        for node in self._placement.others:
            if node.index in others:
                compared, differed = counts[node.index]
                name = node.address.node_id
                say(
                    kinds.OTHER_BYTES,
                    f"{differed} of {compared} pages that workers of this node set have other "
                    f"bytes at {name} under the same key; those of {len(alike)} other nodes agree.",
                    f"Compare the engines of {name} with the others: weights, scales of an FP8 "
                    "cache, versions. Until then give them another namespace.",
                    about=name,
                )

    def members(self) -> list[dict[str, Any]]:
        """The view's members (admin/status.py's Member), ascending by node id."""
        placement = self._placement
        shares = dict(self._engine.ring_shares())
        same_keys = {
            index: {"keys_compared": compared, "keys_differed": differed}
            for index, compared, differed in self._engine.same_keys()
        }
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
                **same_keys.get(node.index, NOT_COMPARED),
            }
            for node in sorted(placement.nodes.values(), key=lambda n: n.address.node_id)
        ]
