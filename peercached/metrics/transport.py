"""Pages on the network: those this node reads from peers, and those peers read here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from prometheus_client import Metric

from peercached.data_plane.transport import rail_name
from peercached.metrics.bounded import by_peer
from peercached.metrics.single import Single, at, counter, gauge, singles

_SINGLES = (
    Single(
        "counter",
        "channels_connected",
        "transport.channels_connected",
        "RDMA channels made to read from peers.",
    ),
    Single(
        "counter", "channels_refused", "transport.channels_refused", "RDMA channels peers refused."
    ),
    Single(
        "counter",
        "channels_accepted",
        "transport.channels_accepted",
        "RDMA channels by which peers read here.",
    ),
    Single(
        "counter",
        "channel_offers_refused",
        "transport.accepts_refused",
        "RDMA channels that this node refused.",
    ),
    Single(
        "counter",
        "fallback_reads",
        "transport.fallback_reads",
        "Reads over TCP of peers that have RDMA.",
    ),
    Single(
        "gauge",
        "fallback_peers",
        "transport.fallback_peers",
        "Peers that have RDMA and are read over TCP now.",
    ),
    Single("gauge", "tcp_served_channels", "tcp_server.channels", "TCP channels of peers here."),
    Single("counter", "tcp_served_pages", "tcp_server.pages", "Pages peers read here over TCP."),
    Single("counter", "tcp_served_bytes", "tcp_server.bytes", "Bytes peers read here over TCP."),
    Single(
        "counter",
        "tcp_served_stale_pages",
        "tcp_server.stale",
        "Pages peers asked for that were here no more.",
    ),
    Single("counter", "tcp_accepted", "tcp_server.accepted", "TCP channels accepted."),
    Single("counter", "tcp_refused", "tcp_server.refused", "TCP channels refused."),
    Single("counter", "tcp_bad_hellos", "tcp_server.bad_hellos", "TCP channels not proven."),
    Single("counter", "tcp_bad_frames", "tcp_server.bad_frames", "TCP frames that made no sense."),
    Single("counter", "tcp_stalls", "tcp_server.stalls", "Peers cut off for not reading on."),
)

_PEER = (
    ("gauge", "channels", "channels", "Channels to read from a peer."),
    ("counter", "pages", "pages", "Pages read from a peer."),
    ("counter", "bytes", "bytes", "Bytes read from a peer."),
    ("counter", "errors", "errors", "Pages that a peer did not deliver."),
    ("counter", "deadlines", "deadlines", "Pages that a peer did not deliver in time."),
    ("counter", "corrupt_pages", "corrupt", "Pages that came with wrong bytes; never served."),
)
_RAIL = (
    ("gauge", "up", "up", "Whether an RDMA port works."),
    ("gauge", "channels", "channels", "Channels to read from peers by a rail."),
    ("gauge", "responders", "responders", "Channels by which peers read here."),
    ("gauge", "registered_bytes", "registered_bytes", "Memory registered with a rail."),
    ("counter", "pages", "pages", "Pages read by a rail."),
    ("counter", "bytes", "bytes", "Bytes read by a rail."),
    ("counter", "errors", "errors", "Channels of a rail that broke."),
)


def families(status: Mapping[str, Any]) -> Iterator[Metric]:
    peers = by_peer(status.get("transfer", ()), "node_id", [field for _, _, field, _ in _PEER])
    for kind, name, field, about in _PEER:
        family = (counter if kind == "counter" else gauge)(f"peer_{name}", about, ["peer"])
        for peer, row in peers.items():
            family.add_metric([peer], row[field])
        yield family
    rails = at(status, "transport.rails") or []
    for kind, name, field, about in _RAIL:
        family = (counter if kind == "counter" else gauge)(f"rail_{name}", about, ["rail"])
        for rail in rails:
            family.add_metric([rail_name(rail)], rail.get(field, 0))
        yield family
    yield from singles(status, _SINGLES)
