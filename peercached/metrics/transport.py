"""Pages on the network: those this node reads from peers, and those peers read here."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import Metric

from peercached.admin.status import Status
from peercached.metrics.bounded import by_peer
from peercached.metrics.table import Counter, Gauge, labelled, singles

_SINGLES = (
    Counter(
        "channels_connected",
        "transport.channels_connected",
        "RDMA channels made to read from peers.",
    ),
    Counter("channels_refused", "transport.channels_refused", "RDMA channels that peers refused."),
    Counter(
        "channels_accepted",
        "transport.channels_accepted",
        "RDMA channels made for peers to read here.",
    ),
    Counter(
        "channel_offers_refused",
        "transport.accepts_refused",
        "RDMA channels that this node refused.",
    ),
    Counter(
        "fallback_reads", "transport.fallback_reads", "Reads over TCP from peers that have RDMA."
    ),
    Gauge(
        "fallback_peers",
        "transport.fallback_peers",
        "Peers that have RDMA and are read over TCP now.",
    ),
    Gauge("tcp_served_channels", "tcp_server.channels", "Open TCP channels of peers."),
    Counter("tcp_served_pages", "tcp_server.pages", "Pages that peers read here over TCP."),
    Counter("tcp_served_bytes", "tcp_server.bytes", "Bytes that peers read here over TCP."),
    Counter(
        "tcp_served_stale_pages",
        "tcp_server.stale",
        "Pages that peers asked for and that were gone.",
    ),
    Counter("tcp_accepted", "tcp_server.accepted", "TCP channels accepted."),
    Counter(
        "tcp_kernel_sealed",
        "tcp_server.kernel_sealed",
        "Accepted TCP channels with encryption in the kernel.",
    ),
    Counter("tcp_refused", "tcp_server.refused", "TCP channels refused."),
    Counter(
        "tcp_bad_hellos",
        "tcp_server.bad_hellos",
        "TCP channels of peers that did not authenticate.",
    ),
    Counter("tcp_bad_frames", "tcp_server.bad_frames", "Malformed TCP frames."),
    Counter(
        "tcp_stalls", "tcp_server.stalls", "TCP channels closed because the peer stopped reading."
    ),
)

_PEER = (
    Gauge("peer_channels", "channels", "Channels to read from a peer."),
    Counter("peer_pages", "pages", "Pages read from a peer."),
    Counter("peer_bytes", "bytes", "Bytes read from a peer."),
    Counter("peer_errors", "errors", "Pages that a peer did not deliver."),
    Counter("peer_deadlines", "deadlines", "Pages that a peer did not deliver in time."),
    Counter(
        "peer_corrupt_pages",
        "corrupt",
        "Pages from a peer with a wrong checksum, not served.",
    ),
)
_RAIL = (
    Gauge("rail_up", "up", "1 if the RDMA port works."),
    Gauge("rail_channels", "channels", "Channels of a rail to read from peers."),
    Gauge("rail_responders", "responders", "Channels of a rail that peers read here with."),
    Gauge("rail_registered_bytes", "registered_bytes", "Memory registered with a rail."),
    Counter("rail_pages", "pages", "Pages read by a rail."),
    Counter("rail_bytes", "bytes", "Bytes read by a rail."),
    Counter("rail_errors", "errors", "Broken channels of a rail."),
)


def families(status: Status) -> Iterator[Metric]:
    yield from labelled(by_peer(status.transfer, lambda peer: peer.node_id), "peer", _PEER)
    yield from labelled({rail.name: [rail] for rail in status.transport.rails}, "rail", _RAIL)
    yield from singles(status, _SINGLES)
