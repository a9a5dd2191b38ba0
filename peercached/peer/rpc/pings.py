"""Asks a peer whether it is alive and still the same process, and whether it vouches."""

from __future__ import annotations

from peercached.membership import NodeAddress
from peercached.peer.rpc.client import Peers
from peercached.peer.rpc.failures import CallFailed
from peercached.proto import peer_pb2 as pb


async def reaches(peers: Peers, target: NodeAddress, deadline_s: float) -> bool:
    """Whether that process answers a ping within `deadline_s` seconds, handshake included."""
    return await _ping(peers, target, deadline_s) is not None


async def vouches(peers: Peers, target: NodeAddress, deadline_s: float) -> bool:
    """Whether that process says within `deadline_s` seconds that it has missed no removal. If so,
    this stays true until it ends."""
    reply = await _ping(peers, target, deadline_s)
    return reply is not None and reply.vouches


async def _ping(peers: Peers, target: NodeAddress, deadline_s: float) -> pb.PingReply | None:
    link = peers.link(target.endpoint)
    try:
        reply: pb.PingReply = await link.call_within(
            "Ping", pb.PingRequest(), deadline_s, expect=target
        )
    except (CallFailed, ValueError):
        return None
    return reply
