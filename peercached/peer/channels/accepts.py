"""RDMA channels, the holder's side: gives a member a queue pair that may READ our pool.

A peer gets one only for itself (its session says who it is) and only while it is in the view.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from peercached.directory.placement import Node, Placement
from peercached.membership import NodeAddress
from peercached.peer.channels import ends as channel_ends
from peercached.peer.channels.device_threads import DeviceThreads
from peercached.peer.rpc.failures import Unable

if TYPE_CHECKING:
    from peercached._native import Engine

log = logging.getLogger(__name__)

# Of one reader at a time; more than a reader asks for at once (connects.py).
ACCEPTS_PER_PEER_MAX = 8


class Accepts:
    def __init__(self, engine: Engine, placement: Placement) -> None:
        self._engine = engine
        self._placement = placement
        self._asked: dict[Node, int] = {}
        self._threads = DeviceThreads("accept-channel")
        self.accepted = 0
        self.refused = 0

    async def accept(self, caller: NodeAddress, end: bytes, closed: bytes) -> bytes:
        """A packed ChannelAnswer for the caller's packed ChannelEnd; `closed`: packed u32 numbers
        of the caller's channels that are no more. LookupError: the caller is not in our view.
        ValueError: the data plane can make nothing of it. Unable."""
        try:
            answer = await self._accept(self._member(caller), end, closed)
        except Exception as error:
            self.refused += 1
            log.info("gave %s no RDMA channel: %s", caller.node_id, error)
            raise
        self.accepted += 1
        return answer

    def stop(self) -> None:
        """After the server has stopped: what is at work ends by itself, and nothing begins."""
        self._threads.stop()

    def forget(self, node: Node) -> None:
        """A node that is out of the view."""
        self._threads.forget(node)

    def _member(self, caller: NodeAddress) -> Node:
        node = self._placement.find_process(caller)
        if node is None or node is self._placement.own:
            raise LookupError(
                f"{caller.node_id} (incarnation {caller.incarnation}) is not in view "
                f"{self._placement.view.number} of {self._placement.own.address.node_id}"
            )
        return node

    async def _accept(self, node: Node, end: bytes, closed: bytes) -> bytes:
        if self._asked.get(node, 0) >= ACCEPTS_PER_PEER_MAX:
            raise Unable(
                f"{ACCEPTS_PER_PEER_MAX} channels for {node.address.node_id} are being made"
            )
        self._asked[node] = self._asked.get(node, 0) + 1
        try:
            rail = channel_ends.rail_of(end)
            answer = await self._threads.run(node, rail, lambda: self._make(node, end, closed))
        finally:
            left = self._asked.pop(node) - 1
            if left:
                self._asked[node] = left
        if not self._in_view(node):
            raise LookupError(f"{node.address.node_id} is no longer in the view")
        return answer

    def _in_view(self, node: Node) -> bool:
        return self._placement.nodes.get(node.index) is node

    def _make(self, node: Node, end: bytes, closed: bytes) -> bytes:
        """In a thread."""
        address = node.address
        try:
            answer = self._engine.accept_channel(address.node_id, address.incarnation, end, closed)
        except RuntimeError as error:
            raise Unable(str(error)) from error
        if not self._in_view(node):
            # It left the view meanwhile: its queue pairs were freed before this one was made. Here,
            # and not where the answer is awaited: the caller may have given up the call.
            self._engine.expel_reader(address.node_id, address.incarnation)
        return answer
