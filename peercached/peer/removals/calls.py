"""Calls to members about removals, and the check of their answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from peercached.directory.layout import DIGEST_BYTES, check_packed
from peercached.directory.placement import Node
from peercached.peer.rpc import wire
from peercached.peer.rpc.failure_detector import FailureDetector
from peercached.peer.rpc.failures import CallFailed
from peercached.proto import peer_pb2 as pb

NAMED_MAX = 8


@dataclass(eq=False)
class RemovalCalls:
    """`timeout_s` bounds each call."""

    _failures: FailureDetector
    _timeout_s: float

    async def call(self, node: Node, method: str, request: Any) -> Any:
        """The reply, or a text that says why there is none."""
        try:
            return await self._failures.call(node, method, request, self._timeout_s)
        except CallFailed as error:
            return str(error)


def malformed(reply: pb.RemoveReply) -> str:
    """Returns the fault of the reply; empty if it has none."""
    try:
        check_packed(reply.digests, DIGEST_BYTES, "digests")
        for message in reply.silent:
            wire.address_of(message)
        for name in reply.untold[:NAMED_MAX]:
            wire.check_name("node id", name)
    except ValueError as error:
        return f"its answer is malformed: {error}"
    return ""
