"""Who this node is at this start: its incarnation, and its place among the heads."""

from __future__ import annotations

import asyncio
import secrets
import socket
import time

from peercached.config import Config
from peercached.config.values import split_address


def new_incarnation() -> int:
    """Grows from start to start by the wall clock; the random bits keep two starts apart
    that read the same time. Never 0, and within 63 bits."""
    return (time.time_ns() >> 10 << 10 | secrets.randbits(10)) & (2**63 - 1) or 1


async def own_rank(config: Config) -> int | None:
    """This node's place among the heads: the first whose name is ours and port is our own."""
    loop = asyncio.get_running_loop()
    own = await _addresses(loop, config.host, config.meta_port)
    for rank, head in enumerate(config.discovery_addr):
        host, port = split_address(head)
        if port != config.meta_port:
            continue
        if host == config.host or own & await _addresses(loop, host, port):
            return rank
    return None


async def _addresses(loop: asyncio.AbstractEventLoop, host: str, port: int) -> set[str]:
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError:
        return set()  # a head whose name nobody knows now may be known later: no reason to stop
    return {str(entry[4][0]) for entry in found}
