"""Pages on the network: those this node reads from peers, and those peers read here."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import Metric

from peercached.admin.status import Rail, Status, Transfer
from peercached.metrics.bounded import by_peer
from peercached.metrics.single import Family, Single, singles

_SINGLES = (
    Single(
        "counter",
        "channels_connected",
        lambda s: s.transport.channels_connected,
        "RDMA channels made to read from peers.",
    ),
    Single(
        "counter",
        "channels_refused",
        lambda s: s.transport.channels_refused,
        "RDMA channels peers refused.",
    ),
    Single(
        "counter",
        "channels_accepted",
        lambda s: s.transport.channels_accepted,
        "RDMA channels by which peers read here.",
    ),
    Single(
        "counter",
        "channel_offers_refused",
        lambda s: s.transport.accepts_refused,
        "RDMA channels that this node refused.",
    ),
    Single(
        "counter",
        "fallback_reads",
        lambda s: s.transport.fallback_reads,
        "Reads over TCP of peers that have RDMA.",
    ),
    Single(
        "gauge",
        "fallback_peers",
        lambda s: s.transport.fallback_peers,
        "Peers that have RDMA and are read over TCP now.",
    ),
    Single(
        "gauge",
        "tcp_served_channels",
        lambda s: s.tcp_server.channels,
        "TCP channels of peers here.",
    ),
    Single(
        "counter",
        "tcp_served_pages",
        lambda s: s.tcp_server.pages,
        "Pages peers read here over TCP.",
    ),
    Single(
        "counter",
        "tcp_served_bytes",
        lambda s: s.tcp_server.bytes,
        "Bytes peers read here over TCP.",
    ),
    Single(
        "counter",
        "tcp_served_stale_pages",
        lambda s: s.tcp_server.stale,
        "Pages peers asked for that were here no more.",
    ),
    Single("counter", "tcp_accepted", lambda s: s.tcp_server.accepted, "TCP channels accepted."),
    Single(
        "counter",
        "tcp_kernel_sealed",
        lambda s: s.tcp_server.kernel_sealed,
        "TCP channels accepted whose pages the kernel encrypts.",
    ),
    Single("counter", "tcp_refused", lambda s: s.tcp_server.refused, "TCP channels refused."),
    Single(
        "counter", "tcp_bad_hellos", lambda s: s.tcp_server.bad_hellos, "TCP channels not proven."
    ),
    Single(
        "counter",
        "tcp_bad_frames",
        lambda s: s.tcp_server.bad_frames,
        "TCP frames that made no sense.",
    ),
    Single(
        "counter", "tcp_stalls", lambda s: s.tcp_server.stalls, "Peers cut off for not reading on."
    ),
)

_PEER = (
    Family[Transfer](
        "gauge", "peer_channels", lambda p: p.channels, "Channels to read from a peer."
    ),
    Family[Transfer]("counter", "peer_pages", lambda p: p.pages, "Pages read from a peer."),
    Family[Transfer]("counter", "peer_bytes", lambda p: p.bytes, "Bytes read from a peer."),
    Family[Transfer](
        "counter", "peer_errors", lambda p: p.errors, "Pages that a peer did not deliver."
    ),
    Family[Transfer](
        "counter",
        "peer_deadlines",
        lambda p: p.deadlines,
        "Pages that a peer did not deliver in time.",
    ),
    Family[Transfer](
        "counter",
        "peer_corrupt_pages",
        lambda p: p.corrupt,
        "Pages that came with wrong bytes; never served.",
    ),
)
_RAIL = (
    Family[Rail]("gauge", "rail_up", lambda r: r.up, "Whether an RDMA port works."),
    Family[Rail](
        "gauge", "rail_channels", lambda r: r.channels, "Channels to read from peers by a rail."
    ),
    Family[Rail](
        "gauge", "rail_responders", lambda r: r.responders, "Channels by which peers read here."
    ),
    Family[Rail](
        "gauge",
        "rail_registered_bytes",
        lambda r: r.registered_bytes,
        "Memory registered with a rail.",
    ),
    Family[Rail]("counter", "rail_pages", lambda r: r.pages, "Pages read by a rail."),
    Family[Rail]("counter", "rail_bytes", lambda r: r.bytes, "Bytes read by a rail."),
    Family[Rail]("counter", "rail_errors", lambda r: r.errors, "Channels of a rail that broke."),
)


def families(status: Status) -> Iterator[Metric]:
    numbers = (line.number for line in _PEER)
    peers = by_peer(status.transfer, lambda peer: peer.node_id, *numbers)
    for place, of_peers in enumerate(_PEER):
        family = of_peers.metric(["peer"])
        for peer, row in peers.items():
            family.add_metric([peer], row[place])
        yield family
    for of_rails in _RAIL:
        family = of_rails.metric(["rail"])
        for rail in status.transport.rails:
            family.add_metric([rail.name], of_rails.number(rail))
        yield family
    yield from singles(status, _SINGLES)
