"""Before the pages of an earlier start are served: was something cleared while this node was away?

Heartbeats tell a part of the epochs each time; here the whole table is asked for once, of a few
members at the same time, masters first. One that answers is enough: a clear() that did not reach a
member is told to it by heartbeats, so after a while all know the same. When nobody answers within
the bound the node goes on with what it knows, as a node does that lost its network.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

import grpc.aio

from peercached.directory.epochs import Epochs
from peercached.directory.placement import Node
from peercached.peer.rpc.auth import AuthError
from peercached.peer.rpc.client import Peers
from peercached.peer.rpc.failures import Unreachable
from peercached.proto import peer_pb2 as pb

log = logging.getLogger(__name__)

ASKED_MAX = 5


async def catch_up(
    epochs: Epochs, peers: Peers, nodes: Sequence[Node], masters: set[str], timeout_s: float
) -> int:
    """How many of the asked told us theirs; `nodes` are the others, `masters` their node ids."""
    first = sorted(nodes, key=lambda node: node.address.node_id not in masters)[:ASKED_MAX]
    answers = await asyncio.gather(*(_ask(epochs, peers, node, timeout_s) for node in first))
    if first and not any(answers):
        log.warning("no member told which namespaces were cleared meanwhile: heartbeats will")
    return sum(answers)


async def _ask(epochs: Epochs, peers: Peers, node: Node, timeout_s: float) -> bool:
    link = peers.link(node.address.endpoint)
    try:
        reply: pb.EpochsReply = await asyncio.wait_for(
            link.call("Epochs", pb.EpochsRequest(), timeout_s, expect=node.address), timeout_s
        )
        epochs.learn(((entry.namespace_id, entry.epoch) for entry in reply.epochs), asked=True)
    except (Unreachable, AuthError, ValueError, grpc.aio.AioRpcError, asyncio.TimeoutError) as e:
        log.info("%s does not tell its epochs: %s", node.address.node_id, e)
        return False
    return True
