"""RDMA channels, the holder's side: gives a member a queue pair that may READ our pool.

A peer gets one only for itself (its session proves its identity) and only while in the view.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from peercached.directory.placement import Change, Node, Placement
from peercached.membership import NodeAddress
from peercached.peer.channels.device_threads import DeviceThreads
from peercached.peer.channels.ends import check_closed, rail_of
from peercached.peer.rpc.failures import Unable

if TYPE_CHECKING:
    from peercached._native import Engine

log = logging.getLogger(__name__)

# Concurrent calls of one reader. More than connects.py sends at once, because a call that timed out
# at the reader may still run here.
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
        """Makes a queue pair for the caller. Returns the packed ChannelAnswer.

        `end`: the caller's packed ChannelEnd. `closed`: packed u32 numbers of channels that the
        caller has closed. Raises LookupError if the caller is not in our view, ValueError for a
        malformed `end` or `closed`, and Unable if no channel can be made now."""
        try:
            check_closed(closed)
            answer = await self._accept(self._member(caller), end, closed)
        except Exception as error:
            self.refused += 1
            log.info("refused an RDMA channel to %s: %s", caller.node_id, error)
            raise
        self.accepted += 1
        return answer

    def stop(self) -> None:
        """Call after the server has stopped. Running calls end by themselves; no others begin."""
        self._threads.stop()

    def view_changed(self, change: Change) -> None:
        for node in change.removed:
            self._threads.forget(node)

    def _member(self, caller: NodeAddress) -> Node:
        node = self._placement.member(caller)
        if node is self._placement.own:
            raise LookupError("a node needs no channel to itself")
        return node

    async def _accept(self, node: Node, end: bytes, closed: bytes) -> bytes:
        if self._asked.get(node, 0) >= ACCEPTS_PER_PEER_MAX:
            raise Unable(
                f"{ACCEPTS_PER_PEER_MAX} channels for {node.address.node_id} are being made"
            )
        self._asked[node] = self._asked.get(node, 0) + 1
        try:
            make = partial(self._make, node, end, closed)
            answer = await self._threads.run(node, rail_of(end), make)
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
        """Runs in a device thread."""
        address = node.address
        try:
            answer = self._engine.accept_channel(address.node_id, address.incarnation, end, closed)
        except RuntimeError as error:
            raise Unable(str(error)) from error
        if not self._in_view(node):
            # The node left the view, and its queue pairs were freed before this one was made. Free
            # it here, not after the await: the caller may have given up the call.
            self._engine.expel_reader(address.node_id, address.incarnation)
        return answer
