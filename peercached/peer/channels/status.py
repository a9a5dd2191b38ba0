"""The transport's part of the status document, its health findings, and the pages read by peer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from peercached.component import Component, Stats
from peercached.data_plane.transport import rdma_devices, say_transport
from peercached.directory.placement import Placement
from peercached.health import Say, kinds
from peercached.health.recent_growth import DAY_S, Recent
from peercached.peer.channels.accepts import Accepts
from peercached.peer.channels.connects import Connects

if TYPE_CHECKING:
    from peercached._native import Engine


@dataclass(eq=False)
class TransportStatus(Component):
    _engine: Engine
    _placement: Placement
    _connects: Connects
    _accepts: Accepts
    _wanted: str  # the key protocol

    def __post_init__(self) -> None:
        self._corrupt = Recent(DAY_S)

    def sections(self, stats: Stats) -> dict[str, Any]:
        return {
            "transport": self._transport(),
            "transfer": self._transfer(stats),
            "tcp_server": stats.get("tcp_server", {}),
        }

    def say(self, say: Say, stats: Stats) -> None:
        say_transport(say, self._wanted, self._transport(), rdma_devices())
        corrupt = stats.get("operations", {}).get("corrupt_remote", 0)
        if corrupt := self._corrupt.grown(corrupt):
            peers = ", ".join(p["node_id"] for p in self._transfer(stats) if p.get("corrupt"))
            say(
                kinds.CORRUPT_FROM_PEERS,
                f"{corrupt} pages from peers arrived with a wrong checksum in the last day. They "
                f"were read again or became misses. (From {peers or 'peers that are gone'}.)",
                "Look for memory errors of those machines and for workers that write into their "
                "receive buffers during a get.",
            )

    def _transport(self) -> dict[str, Any]:
        return {
            **self._engine.transport(),
            "channels_connected": self._connects.connected,
            "channels_refused": self._connects.refused,
            "channels_accepted": self._accepts.accepted,
            "accepts_refused": self._accepts.refused,
        }

    def _transfer(self, stats: Stats) -> list[dict[str, Any]]:
        own, nodes = self._placement.own.address, self._placement.nodes
        return [
            {
                "node_id": node.address.node_id,
                "incarnation": node.address.incarnation,
                "engine": own.transport_to(node.address),
                **{name: value for name, value in peer.items() if name != "index"},
            }
            for peer in stats.get("peers", [])
            if (node := nodes.get(peer["index"])) is not None
        ]
