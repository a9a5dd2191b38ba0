"""Promote: a holder brings pages from its disk into its pool, so that a reader can READ them.

Both sides are here. We ask a holder when a worker of ours waits or may soon ask (`exists`), and we
serve peers that ask us. The data plane does the work (native/engine/storage/promoter.h), on threads
of its own, so that a hung disk holds up nothing else.
"""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from peercached.directory.layout import DIGEST_BYTES, ROW_BYTES, check_digests, of_holder
from peercached.directory.placement import Node, Placement
from peercached.peer.rpc.failure_detector import FailureDetector
from peercached.peer.rpc.failures import CallFailed, Unable
from peercached.proto import peer_pb2 as pb

if TYPE_CHECKING:
    from peercached._native import Engine

log = logging.getLogger(__name__)

DIGESTS_MAX = 4096
# Promotions for peers that run at a time, and the limit on those that run or wait.
THREADS = 4
WAITING_MAX = 64
# Our warm requests under way at a time; further ones are dropped.
WARMS_MAX = 32
# Seconds between reports of used pages: long beside the cost of a message, short beside the life
# of a page.
TELL_USED_S = 1.0
# Share of the remaining time that the holder's disk may take. The rest is for the READ.
SHARE = 0.8


class Promotes:
    """Use it on the event loop's thread. `timeout_s` bounds each promotion, asked or served."""

    def __init__(
        self,
        engine: Engine,
        placement: Placement,
        failures: FailureDetector,
        timeout_s: float,
    ) -> None:
        self._engine = engine
        self._placement = placement
        self._failures = failures
        self._timeout_s = timeout_s
        self._threads = ThreadPoolExecutor(THREADS, "promote")
        self._running = 0
        self._warms: set[asyncio.Task[bytes]] = set()
        self._told_at = 0.0
        self.asked = 0
        self.served = 0
        self.refused = 0  # peers' requests, because too many were waiting

    # --- as a reader

    async def ask(self, index: int, digests: bytes, left_s: float) -> bytes:
        """Asks a holder (our index) to promote pages, within `left_s`. Returns packed rows with our
        index of the holder: records of pages now in its pool, withdrawals of pages that it does not
        have. Empty if the call failed."""
        node = self._placement.nodes.get(index)
        if node is None:
            return b""
        self.asked += 1
        timeout_s = min(left_s * SHARE, self._timeout_s)
        request = pb.PromoteRequest(digests=digests, timeout_ms=max(round(timeout_s * 1000), 1))
        return of_holder(await self._call(node, request, left_s), index)

    def warm(self, index: int, digests: bytes) -> None:
        """Tells a holder that its pages are used: it may promote them when it has time. Returns at
        once."""
        node = self._placement.nodes.get(index)
        if node is None or len(self._warms) >= WARMS_MAX:
            return
        request = pb.PromoteRequest(digests=digests[: DIGESTS_MAX * DIGEST_BYTES], warm=True)
        task = asyncio.ensure_future(self._call(node, request, self._timeout_s))
        self._warms.add(task)
        task.add_done_callback(self._warms.discard)

    def tend(self, now: float) -> None:
        """Tells holders which of their pages were used here. They cannot see an RDMA READ, so they
        would evict popular pages as unused. Call it often: it limits itself to TELL_USED_S."""
        if now < self._told_at + TELL_USED_S:
            return
        self._told_at = now
        for index, digests in self._engine.take_used():
            self.warm(index, digests)

    async def _call(self, node: Node, request: pb.PromoteRequest, left_s: float) -> bytes:
        try:
            # A disk may be slow while its daemon is well.
            reply = await self._failures.call(node, "Promote", request, left_s, may_be_slow=True)
        except CallFailed as error:
            log.debug("%s promotes nothing: %s", node.address.node_id, error)
            return b""
        rows: bytes = reply.rows
        if len(rows) % ROW_BYTES or len(rows) // ROW_BYTES > len(request.digests) // DIGEST_BYTES:
            log.warning("malformed promote answer from %s (ignored)", node.address.node_id)
            return b""
        return rows

    # --- as a holder

    async def serve(self, digests: bytes, timeout_ms: int, warm: bool) -> bytes:
        """Promotes our pages for a peer. Returns packed rows. Raises ValueError for malformed or
        too many digests, Unable when too many requests wait."""
        check_digests(digests, DIGESTS_MAX)
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
        # Running promotions end at their deadlines; waiting ones are dropped.
        await asyncio.get_running_loop().run_in_executor(
            None, lambda: self._threads.shutdown(wait=True, cancel_futures=True)
        )
