"""All latencies of a running node, with names for people: nodes by id, rails by device and port."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from peercached.data_plane.transport import rail_name
from peercached.directory.placement import Placement
from peercached.observe.latency import Latency

if TYPE_CHECKING:
    from peercached._native import Engine


@dataclass(eq=False)
class Latencies:
    """On the event loop's thread."""

    _engine: Engine
    _placement: Placement

    def now(self) -> list[Latency]:
        from peercached._native import latency_bounds_us

        bounds_us = latency_bounds_us()
        rails = {str(rail["rail"]): rail_name(rail) for rail in self._engine.transport()["rails"]}
        peers = {str(node.index): node.address.node_id for node in self._placement.nodes.values()}
        names = {"peer_read": peers, "rail_read": rails}
        found = []
        for kind, label, sum_ns, packed in self._engine.latencies():
            name = names[kind].get(label) if kind in names else label
            if name is not None:  # else of a peer that has just left
                counts = memoryview(packed).cast("Q").tolist()
                found.append(Latency(kind, name, sum_ns / 1e9, bounds_us, counts))
        return found
