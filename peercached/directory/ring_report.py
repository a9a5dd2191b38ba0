"""The document of `peercachectl ring` (admin/ring.py)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from peercached.directory.layout import SELF
from peercached.directory.local import LocalShard
from peercached.directory.owner import OwnerSide
from peercached.directory.placement import Node, Placement

if TYPE_CHECKING:
    from peercached._native import Engine


class StreamStatus(Protocol):
    """The record streams to the owners (peer/directory/streams.py)."""

    def status(self) -> Sequence[Mapping[str, Any]]: ...


def document(
    engine: Engine,
    placement: Placement,
    owner_side: OwnerSide,
    local: LocalShard,
    streams: StreamStatus,
) -> dict[str, Any]:
    first = dict(engine.ring_shares())
    owned = dict(engine.ring_shares(placement.replicas))
    unsynced = owner_side.unsynced()
    to_owner = {stream["owner"]: stream for stream in streams.status()}
    own_live = local.in_sync_for == placement.view.number

    def of(node: Node) -> dict[str, Any]:
        stream = to_owner.get(node.address.node_id, {})
        if node.index == SELF:
            stream = {"state": "live" if own_live else "resync", "resyncs": local.resyncs}
        return {
            "node_id": node.address.node_id,
            "is_self": node.index == SELF,
            "suspect": node.suspect,
            "share_first": first.get(node.index, 0.0),
            "share_owned": owned.get(node.index, 0.0),
            "our_records": stream.get("state", "connecting"),
            "queued": stream.get("queued", 0),
            "resyncs": stream.get("resyncs", 0),
            "problem": stream.get("problem", ""),
            "its_records_here": node.index not in unsynced,
        }

    nodes = sorted(placement.nodes.values(), key=lambda node: node.address.node_id)
    return {
        "view_number": placement.view.counter,
        "replicas": placement.replicas,
        "final": not unsynced,
        "nodes": [of(node) for node in nodes],
    }
