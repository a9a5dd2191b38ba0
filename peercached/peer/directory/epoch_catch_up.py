"""Learns at start which namespaces were cleared while this node was away, before it serves pages.

Each heartbeat carries only a part of the epochs. So this node asks a few members at the same time
for their whole table, masters first. It believes what most of their hosts say: heartbeats tell
every member of a clear() that it missed, so all tables soon agree. An epoch that fewer hosts know
counts like one in a heartbeat. If nobody answers in time, the node goes on with
the epochs that it knows, like a node that lost its network.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Sequence

from peercached.directory.placement import Node
from peercached.peer.directory.shared_epochs import SharedEpochs
from peercached.peer.rpc.client import Peers
from peercached.peer.rpc.failures import CallFailed
from peercached.proto import peer_pb2 as pb

log = logging.getLogger(__name__)

ASKED_MAX = 5


async def catch_up(
    epochs: SharedEpochs, peers: Peers, nodes: Sequence[Node], masters: set[str], timeout_s: float
) -> int:
    """Returns how many members answered. `nodes` are the other members, `masters` the node ids of
    the masters. `timeout_s` bounds each call; all run in parallel."""
    first = sorted(nodes, key=lambda node: node.address.node_id not in masters)[:ASKED_MAX]
    answers = await asyncio.gather(*(_ask(peers, node, timeout_s) for node in first))
    hosts_by_epoch: dict[tuple[bytes, int], set[str]] = defaultdict(set)
    for node, answer in zip(first, answers, strict=True):
        for told in answer or ():
            hosts_by_epoch[told].add(node.address.host)
    most = len({node.address.host for node in first}) / 2
    epochs.learn((told for told, hosts in hosts_by_epoch.items() if len(hosts) > most), asked=True)
    for node, answer in zip(first, answers, strict=True):
        epochs.hear(node.address, answer or ())
    answered = sum(answer is not None for answer in answers)
    if first and not answered:
        log.warning(
            "none of the %d members asked could say which namespaces were cleared while this node "
            "was away: it may serve cleared pages until heartbeats tell it",
            len(first),
        )
    return answered


async def _ask(peers: Peers, node: Node, timeout_s: float) -> list[tuple[bytes, int]] | None:
    link = peers.link(node.address.endpoint)
    try:
        reply: pb.EpochsReply = await link.call_within(
            "Epochs", pb.EpochsRequest(), timeout_s, expect=node.address
        )
    except CallFailed as error:
        log.info(
            "cannot learn from %s which namespaces were cleared: %s", node.address.node_id, error
        )
        return None
    return [(entry.namespace_id, entry.epoch) for entry in reply.epochs]
