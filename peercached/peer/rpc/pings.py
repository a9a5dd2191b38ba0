"""Asks a peer whether it is alive and still the same process."""

from __future__ import annotations

from peercached.membership import NodeAddress
from peercached.peer.rpc.client import Peers
from peercached.peer.rpc.failures import CallFailed
from peercached.proto import peer_pb2 as pb


async def reaches(peers: Peers, target: NodeAddress, deadline_s: float) -> bool:
    """Whether that process answers a ping within `deadline_s` seconds, handshake included."""
    link = peers.link(target.endpoint)
    try:
        await link.call_within("Ping", pb.PingRequest(), deadline_s, expect=target)
    except (CallFailed, ValueError):
        return False
    return True
