"""Learns at start which namespaces were cleared while this node was away, before it serves pages.

Each heartbeat carries only a part of the epochs. So this node asks a few members at the same time
for their whole table, masters first. One answer is enough: heartbeats tell every member of a
clear() that it missed, so all tables soon agree. If nobody answers in time, the node goes on with
the epochs that it knows, like a node that lost its network.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from peercached.directory.epochs import Epochs
from peercached.directory.placement import Node
from peercached.peer.rpc.client import Peers
from peercached.peer.rpc.failures import CallFailed
from peercached.proto import peer_pb2 as pb

log = logging.getLogger(__name__)

ASKED_MAX = 5


async def catch_up(
    epochs: Epochs, peers: Peers, nodes: Sequence[Node], masters: set[str], timeout_s: float
) -> int:
    """Returns how many members answered. `nodes` are the other members, `masters` the node ids of
    the masters. `timeout_s` bounds each call; all run in parallel."""
    first = sorted(nodes, key=lambda node: node.address.node_id not in masters)[:ASKED_MAX]
    answers = await asyncio.gather(*(_ask(epochs, peers, node, timeout_s) for node in first))
    if first and not any(answers):
        log.warning(
            "none of the %d members asked could say which namespaces were cleared while this node "
            "was away: it may serve cleared pages until heartbeats tell it",
            len(first),
        )
    return sum(answers)


async def _ask(epochs: Epochs, peers: Peers, node: Node, timeout_s: float) -> bool:
    link = peers.link(node.address.endpoint)
    try:
        reply: pb.EpochsReply = await link.call_within(
            "Epochs", pb.EpochsRequest(), timeout_s, expect=node.address
        )
        epochs.learn(((entry.namespace_id, entry.epoch) for entry in reply.epochs), asked=True)
    except (CallFailed, ValueError) as error:
        log.info(
            "cannot learn from %s which namespaces were cleared: %s", node.address.node_id, error
        )
        return False
    return True
