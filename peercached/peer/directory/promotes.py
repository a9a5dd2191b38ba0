"""Promote: pages on a holder's disk come into its pool, so that a reader can READ them.

On both sides: asking a holder, because a worker of ours waits or may soon (`exists`), and serving a
peer that asks us. The data plane does the work (native/engine/promoter.h), on threads of its own: a
disk that hangs holds up nobody else.
"""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import grpc.aio

from peercached.directory.layout import DIGEST_BYTES, ROW_BYTES, SELF, check_packed, pack_mapping
from peercached.directory.native import Native
from peercached.directory.placement import Node, Placement
from peercached.peer.rpc.auth import AuthError
from peercached.peer.rpc.client import Peers
from peercached.peer.rpc.failure_detector import FailureDetector
from peercached.peer.rpc.failures import TimedOut, Unable, Unreachable
from peercached.proto import peer_pb2 as pb

if TYPE_CHECKING:
    from peercached._native import Engine

log = logging.getLogger(__name__)

DIGESTS_MAX = 4096
# Promotions of peers that run at a time, and that wait for one of these to end.
THREADS = 4
WAITING_MAX = 64
# Wishes of ours to warm pages, under way at a time; further ones are dropped.
WARMS_MAX = 32
# Long beside what a message costs, short beside the life of a page.
TELL_USED_S = 1.0
# Of the time that is left, the holder's disk may take so much: the rest is for the READ.
SHARE = 0.8


class Promotes:
    """On the event loop's thread. `timeout_s` bounds what we ask for and what we serve."""

    def __init__(
        self,
        engine: Engine,
        native: Native,
        placement: Placement,
        peers: Peers,
        failures: FailureDetector,
        timeout_s: float,
    ) -> None:
        self._engine = engine
        self._native = native
        self._placement = placement
        self._peers = peers
        self._failures = failures
        self._timeout_s = timeout_s
        self._threads = ThreadPoolExecutor(THREADS, "promote")
        self._running = 0
        self._warms: set[asyncio.Task[None]] = set()
        self._told_at = 0.0
        self.asked = 0
        self.served = 0
        self.refused = 0  # of peers, because too many were waiting

    # --- as a reader

    async def ask(self, index: int, digests: bytes, left_s: float) -> bytes:
        """The holder's records of those that it has in its pool now, with our index of it, and
        withdrawals of those that it has not got at all. Empty if it cannot be asked."""
        node = self._placement.nodes.get(index)
        if node is None:
            return b""
        self.asked += 1
        timeout_s = min(left_s * SHARE, self._timeout_s)
        request = pb.PromoteRequest(digests=digests, timeout_ms=max(round(timeout_s * 1000), 1))
        rows = await self._call(node, request, left_s)
        try:
            return self._native.map_rows(rows, pack_mapping({SELF: index})) if rows else b""
        except ValueError as error:
            log.warning("promoted records of %s are malformed: %s", node.address.node_id, error)
            return b""

    def warm(self, index: int, digests: bytes) -> None:
        """That holder's pages are used: it may promote them when it has time. Nobody waits."""
        node = self._placement.nodes.get(index)
        if node is None or len(self._warms) >= WARMS_MAX:
            return
        request = pb.PromoteRequest(digests=digests[: DIGESTS_MAX * DIGEST_BYTES], warm=True)
        task = asyncio.ensure_future(self._warm(node, request))
        self._warms.add(task)
        task.add_done_callback(self._warms.discard)

    def tell_used(self, now: float) -> None:
        """To be called often: now and then, holders hear which of their pages were used here. They
        cannot see an RDMA READ, and would evict as unused what all read."""
        if now < self._told_at + TELL_USED_S:
            return
        self._told_at = now
        for index, digests in self._engine.take_used():
            self.warm(index, digests)

    async def _warm(self, node: Node, request: pb.PromoteRequest) -> None:
        await self._call(node, request, self._timeout_s)

    async def _call(self, node: Node, request: pb.PromoteRequest, left_s: float) -> bytes:
        link = self._peers.link(node.address.endpoint)
        try:
            reply = await link.call("Promote", request, left_s, expect=node.address)
        except TimedOut:
            return b""  # a disk may be slow while its daemon is well
        except Unreachable as error:
            self._failures.failed(node, error)
            return b""
        except (AuthError, grpc.aio.AioRpcError) as error:
            log.debug("%s promotes nothing: %s", node.address.node_id, error)
            return b""
        rows: bytes = reply.rows
        if len(rows) % ROW_BYTES:
            log.warning("promoted records of %s are malformed", node.address.node_id)
            return b""
        return rows

    # --- as a holder

    async def serve(self, digests: bytes, timeout_ms: int, warm: bool) -> bytes:
        """Packed rows. ValueError for more than a batch; Unable when too many are waiting."""
        check_packed(digests, DIGEST_BYTES, "digests")
        if len(digests) > DIGESTS_MAX * DIGEST_BYTES:
            raise ValueError(
                f"{len(digests) // DIGEST_BYTES} pages to promote at once; {DIGESTS_MAX} are the "
                "limit"
            )
        if warm:
            self._engine.warm(digests)
            return b""
        if self._running >= WAITING_MAX:
            self.refused += 1
            raise Unable(f"{self._running} promotions are under way or waiting already")
        self._running += 1
        self.served += 1
        loop = asyncio.get_running_loop()
        until = loop.time() + min(timeout_ms / 1000, self._timeout_s)

        def promote() -> bytes:
            left_ms = round(1000 * (until - loop.time()))
            return self._engine.promote(digests, left_ms) if left_ms > 0 else b""

        try:
            return await loop.run_in_executor(self._threads, promote)
        finally:
            self._running -= 1

    async def stop(self) -> None:
        for task in self._warms:
            task.cancel()
        await asyncio.gather(*self._warms, return_exceptions=True)
        # Those that run end at their deadlines; what waits is dropped.
        await asyncio.get_running_loop().run_in_executor(
            None, lambda: self._threads.shutdown(wait=True, cancel_futures=True)
        )
