"""Asks a peer whether it is alive and still the same process."""

from __future__ import annotations

import asyncio

import grpc.aio

from peercached.membership import NodeAddress
from peercached.peer.rpc.auth import AuthError
from peercached.peer.rpc.client import Peers
from peercached.peer.rpc.failures import Unreachable
from peercached.proto import peer_pb2 as pb


async def reaches(peers: Peers, target: NodeAddress, deadline_s: float) -> bool:
    """Whether that process answers a ping within `deadline_s` seconds, handshake included."""
    link = peers.link(target.endpoint)
    try:
        await asyncio.wait_for(
            link.call("Ping", pb.PingRequest(), deadline_s, expect=target), deadline_s
        )
    except (Unreachable, AuthError, ValueError, grpc.aio.AioRpcError, asyncio.TimeoutError):
        return False
    return True
