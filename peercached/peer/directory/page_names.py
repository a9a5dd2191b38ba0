"""PageNames: a node tells what engines call its pages, for the events that others tell of them.

Both sides are here. The data plane packs and reads the names (native/kv_events/picture.h).
"""

from __future__ import annotations

import asyncio
import logging
import struct
from typing import TYPE_CHECKING

import grpc

from peercached.directory.layout import DIGEST_BYTES, check_digests
from peercached.directory.placement import Placement
from peercached.peer.rpc.failure_detector import FailureDetector
from peercached.peer.rpc.failures import CallFailed, Refused
from peercached.proto import peer_pb2 as pb

if TYPE_CHECKING:
    from peercached._native import Engine

log = logging.getLogger(__name__)

DIGESTS_MAX = 4096
# A node that did not answer is asked again after this.
PAUSE_S = 0.5
_UNKNOWN = struct.pack("<HBH", 0xFFFF, 0, 0)


class PageNames:
    """On the event loop's thread."""

    def __init__(
        self,
        engine: Engine,
        placement: Placement,
        failures: FailureDetector,
        timeout_s: float,
        is_on: bool,
    ) -> None:
        self._engine = engine
        self._placement = placement
        self._failures = failures
        self._timeout_s = timeout_s
        self._is_on = is_on

    async def ask(self, index: int, digests: bytes) -> None:
        """Asks a node (our index) for the names of its pages, and gives them to the engine."""
        names = await self._names(index, digests)
        loop = asyncio.get_running_loop()
        # On another thread: they wait while events are being told.
        if names is None:
            await asyncio.sleep(PAUSE_S)
            await loop.run_in_executor(None, self._engine.kv_unanswered, index, digests)
            return
        answered = self._engine.kv_answered
        try:
            await loop.run_in_executor(None, answered, index, digests, names)
        except ValueError as error:
            log.warning("malformed names of pages from node %d (ignored): %s", index, error)
            await loop.run_in_executor(None, answered, index, digests, _none(digests))

    async def _names(self, index: int, digests: bytes) -> bytes | None:
        node = self._placement.nodes.get(index)
        if node is None:
            return None
        request = pb.PageNamesRequest(digests=digests)
        try:
            reply = await self._failures.call(
                node, "PageNames", request, self._timeout_s, may_be_slow=True
            )
        except Refused as error:
            is_old = error.code is grpc.StatusCode.UNIMPLEMENTED  # it knows no names
            return _none(digests) if is_old else None
        except CallFailed as error:
            log.debug("%s tells no names: %s", node.address.node_id, error)
            return None
        names: bytes = reply.names
        return names

    async def serve(self, digests: bytes) -> bytes:
        """Packed names, of pages here and elsewhere, as far as this node knows them. A node that
        tells no events knows none. ValueError."""
        check_digests(digests, DIGESTS_MAX)
        if not self._is_on:
            return _none(digests)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(None, self._engine.kv_names, digests)


def _none(digests: bytes) -> bytes:
    return struct.pack("<I", 0) + _UNKNOWN * (len(digests) // DIGEST_BYTES)
