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
    Counter("channels_refused", "transport.channels_refused", "RDMA channels peers refused."),
    Counter(
        "channels_accepted",
        "transport.channels_accepted",
        "RDMA channels by which peers read here.",
    ),
    Counter(
        "channel_offers_refused",
        "transport.accepts_refused",
        "RDMA channels that this node refused.",
    ),
    Counter(
        "fallback_reads", "transport.fallback_reads", "Reads over TCP of peers that have RDMA."
    ),
    Gauge(
        "fallback_peers",
        "transport.fallback_peers",
        "Peers that have RDMA and are read over TCP now.",
    ),
    Gauge("tcp_served_channels", "tcp_server.channels", "TCP channels of peers here."),
    Counter("tcp_served_pages", "tcp_server.pages", "Pages peers read here over TCP."),
    Counter("tcp_served_bytes", "tcp_server.bytes", "Bytes peers read here over TCP."),
    Counter(
        "tcp_served_stale_pages",
        "tcp_server.stale",
        "Pages peers asked for that were here no more.",
    ),
    Counter("tcp_accepted", "tcp_server.accepted", "TCP channels accepted."),
    Counter(
        "tcp_kernel_sealed",
        "tcp_server.kernel_sealed",
        "TCP channels accepted whose pages the kernel encrypts.",
    ),
    Counter("tcp_refused", "tcp_server.refused", "TCP channels refused."),
    Counter("tcp_bad_hellos", "tcp_server.bad_hellos", "TCP channels not proven."),
    Counter("tcp_bad_frames", "tcp_server.bad_frames", "TCP frames that made no sense."),
    Counter("tcp_stalls", "tcp_server.stalls", "Peers cut off for not reading on."),
)

_PEER = (
    Gauge("peer_channels", "channels", "Channels to read from a peer."),
    Counter("peer_pages", "pages", "Pages read from a peer."),
    Counter("peer_bytes", "bytes", "Bytes read from a peer."),
    Counter("peer_errors", "errors", "Pages that a peer did not deliver."),
    Counter("peer_deadlines", "deadlines", "Pages that a peer did not deliver in time."),
    Counter("peer_corrupt_pages", "corrupt", "Pages that came with wrong bytes; never served."),
)
_RAIL = (
    Gauge("rail_up", "up", "Whether an RDMA port works."),
    Gauge("rail_channels", "channels", "Channels to read from peers by a rail."),
    Gauge("rail_responders", "responders", "Channels by which peers read here."),
    Gauge("rail_registered_bytes", "registered_bytes", "Memory registered with a rail."),
    Counter("rail_pages", "pages", "Pages read by a rail."),
    Counter("rail_bytes", "bytes", "Bytes read by a rail."),
    Counter("rail_errors", "errors", "Channels of a rail that broke."),
)


def families(status: Status) -> Iterator[Metric]:
    yield from labelled(by_peer(status.transfer, lambda peer: peer.node_id), "peer", _PEER)
    yield from labelled({rail.name: [rail] for rail in status.transport.rails}, "rail", _RAIL)
    yield from singles(status, _SINGLES)
