"""The document of `peercachectl ring` (admin/ring.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from peercached.directory.followers import followers_of
from peercached.directory.layout import SELF
from peercached.directory.placement import Node, Placement

if TYPE_CHECKING:
    from peercached._native import Engine


def document(engine: Engine, placement: Placement) -> dict[str, Any]:
    first = dict(engine.ring_shares())
    owned = dict(engine.ring_shares(placement.replicas))
    here = {SELF, *engine.followed()}
    followers = followers_of(engine, placement)

    def of(node: Node) -> dict[str, Any]:
        ours = followers.get(node)
        return {
            "node_id": node.address.node_id,
            "is_self": node.index == SELF,
            "suspect": node.suspect,
            "share_first": first.get(node.index, 0.0),
            "share_owned": owned.get(node.index, 0.0),
            "our_records": "live" if node.index == SELF else ours.state if ours else "none",
            "queued": ours.behind if ours else 0,
            "its_records_here": node.index in here,
        }

    nodes = sorted(placement.nodes.values(), key=lambda node: node.address.node_id)
    return {
        "view_number": placement.view.counter,
        "replicas": placement.replicas,
        "final": SELF not in first or engine.final_view == placement.view.number,
        "nodes": [of(node) for node in nodes],
    }
