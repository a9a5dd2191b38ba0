"""Answers the calls of the Router service."""

from __future__ import annotations

from typing import Any, Protocol

from peercached.hints.envelope import Outcome
from peercached.proto import router_pb2 as pb
from peercached.proto import router_pb2_grpc


class TakesHints(Protocol):
    async def take(self, envelope: bytes, *, wait: bool) -> list[Outcome]:
        """One outcome for each action, in order. With `wait` they are final. Raises ValueError for
        a malformed envelope, or one above the bounds."""


class RouterServicer(router_pb2_grpc.RouterServicer):
    """On the event loop's thread. The gate has admitted the caller."""

    def __init__(self, hints: TakesHints) -> None:
        self._hints = hints

    async def Hints(self, request: Any, context: Any) -> Any:
        del context
        outcomes = await self._hints.take(request.envelope, wait=request.wait)
        return pb.HintsReply(outcomes=[pb.HintOutcome(**each.document()) for each in outcomes])
