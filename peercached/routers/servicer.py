"""Answers the calls of the Router service."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any, Protocol

from peercached.hints.envelope import Outcome
from peercached.kv_events.stream import Batch
from peercached.proto import router_pb2 as pb
from peercached.proto import router_pb2_grpc


class TakesHints(Protocol):
    async def take(self, envelope: bytes, *, wait: bool) -> list[Outcome]:
        """One outcome for each action, in order. With `wait` they are final. Raises ValueError for
        a malformed envelope, or one above the bounds."""


class TellsEvents(Protocol):
    def follow(self, start: int) -> AsyncGenerator[Batch, None]:
        """See KvEvents.follow()."""


class RouterServicer(router_pb2_grpc.RouterServicer):
    """On the event loop's thread. The gate has admitted the caller."""

    def __init__(self, hints: TakesHints, events: TellsEvents) -> None:
        self._hints = hints
        self._events = events

    async def Hints(self, request: Any, context: Any) -> Any:
        del context
        outcomes = await self._hints.take(request.envelope, wait=request.wait)
        return pb.HintsReply(outcomes=[pb.HintOutcome(**each.document()) for each in outcomes])

    async def Events(self, request: Any, context: Any) -> AsyncIterator[Any]:
        del context
        async with contextlib.aclosing(self._events.follow(request.start)) as batches:
            async for batch in batches:
                yield pb.EventBatch(
                    number=batch.number, topic=batch.topic.decode(), payload=batch.payload
                )
