"""All latencies of a running node, with names for people: nodes by id, rails by device and port."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peercached.observe.latency import Latency
from peercached.transport_health import rail_name

if TYPE_CHECKING:
    from peercached.daemon import Daemon


def latencies(daemon: Daemon) -> list[Latency]:
    """Those of the data plane and of the control plane. On the event loop's thread."""
    from peercached._native import latency_bounds_us

    bounds_us = latency_bounds_us()
    rails = {str(rail["rail"]): rail_name(rail) for rail in daemon.engine.transport()["rails"]}
    peers = {str(node.index): node.address.node_id for node in daemon.placement.nodes.values()}
    names = {"peer_read": peers, "rail_read": rails}
    found = []
    for kind, label, sum_ns, packed in daemon.engine.latencies():
        name = names[kind].get(label) if kind in names else label
        if name is not None:  # else of a peer that has just left
            counts = memoryview(packed).cast("Q").tolist()
            found.append(Latency(kind, name, sum_ns / 1e9, bounds_us, counts))
    found.append(daemon.lookups.latency.so_far())
    return found
