"""Drives Lookups: the asks in parallel, each fall-through at once, the caller's deadline."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Any

import grpc.aio

from peercached.directory.lookup import Ask, Lookup, LookupCounters
from peercached.directory.native import Native
from peercached.directory.owner import OwnerSide
from peercached.directory.placement import Node, Placement
from peercached.peer.auth import AuthError
from peercached.peer.client import Peers, Unreachable
from peercached.peer.trouble import Trouble
from peercached.proto import peer_pb2 as pb

if TYPE_CHECKING:
    from peercached._native import Engine

log = logging.getLogger(__name__)

# Left for the way back to the worker.
MARGIN_S = 0.002


class Lookups:
    def __init__(
        self,
        engine: Engine,
        native: Native,
        placement: Placement,
        owner_side: OwnerSide,
        peers: Peers,
        trouble: Trouble,
    ) -> None:
        self._engine = engine
        self._native = native
        self._placement = placement
        self._owner_side = owner_side
        self._peers = peers
        self._trouble = trouble
        self.counters = LookupCounters()

    async def find(self, digests: bytes, left_s: float) -> bytes:
        """Records with our holder indices: all there are, or what was found in time."""
        now = time.monotonic()
        deadline = now + left_s - MARGIN_S
        lookup = Lookup(
            self._engine,
            self._native,
            self._placement,
            self._owner_side,
            self.counters,
            digests,
            now,
        )
        asks = lookup.start()
        if len(asks) == 1:
            # The common case needs no tasks: one owner, or what falls through from it.
            more = await self._ask(lookup, asks[0], deadline)
            if not more:
                return lookup.rows()
            asks = more
        if asks:
            await self._ask_all(lookup, asks, deadline)
        return lookup.rows()

    async def _ask_all(self, lookup: Lookup, asks: list[Ask], deadline: float) -> None:
        running = {asyncio.ensure_future(self._ask(lookup, a, deadline)) for a in asks}
        try:
            while running:
                left = deadline - time.monotonic()
                if left <= 0:
                    break
                done, running = await asyncio.wait(
                    running, timeout=left, return_when=asyncio.FIRST_COMPLETED
                )
                for task in done:
                    for ask in task.result():
                        running.add(asyncio.ensure_future(self._ask(lookup, ask, deadline)))
        finally:
            for task in running:
                task.cancel()

    async def _ask(self, lookup: Lookup, ask: Ask, deadline: float) -> list[Ask]:
        node = self._placement.nodes.get(ask.owner)
        left = deadline - time.monotonic()
        if node is None or left <= 0:
            return lookup.failed(ask)
        reply = await self.ask_owner(node, ask.digests, left)
        if isinstance(reply, str):
            return lookup.failed(ask)
        try:
            return lookup.answered(
                ask, reply.rows, [(h.node_id, h.incarnation) for h in reply.holders], reply.final
            )
        except ValueError as error:
            log.warning("a lookup's answer of %s is malformed: %s", node.address.node_id, error)
            return lookup.failed(ask)

    async def ask_owner(self, node: Node, digests: bytes, left_s: float) -> Any:
        """A LookupReply, or the text of what went wrong (and the owner is suspect)."""
        link = self._peers.link(node.address.endpoint)
        request = pb.LookupRequest(digests=digests, view_number=self._placement.view.number)
        try:
            return await link.call("Lookup", request, left_s, expect=node.address)
        except Unreachable as error:
            self._trouble.unreachable(node, str(error), left_s)
            return str(error)
        except (AuthError, grpc.aio.AioRpcError) as error:
            log.warning("lookup at %s failed: %s", node.address.node_id, error)
            return str(error)
