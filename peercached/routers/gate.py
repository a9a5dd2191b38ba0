"""Stands before the Router service: reads no message of a caller without the token.

gRPC reads a message before it runs a unary method. So a call without the token ends at its headers,
which gRPC limits to 16 KiB.
"""

from __future__ import annotations

from typing import Any

import grpc
import grpc.aio

from peercached.peer.rpc.auth import Secret
from peercached.peer.rpc.connection_limits import ConnectionLimits
from peercached.peer.rpc.parse import parser
from peercached.peer.server.refusals import Refusals
from peercached.proto import router_pb2_grpc
from peercached.routers.token import HEADER, Tokens


class Gate(grpc.GenericRpcHandler):  # type: ignore[type-arg]
    """On the event loop's thread."""

    def __init__(
        self,
        servicer: router_pb2_grpc.RouterServicer,
        secret: Secret,
        tokens: Tokens,
        limits: ConnectionLimits,
        refusals: Refusals,
    ) -> None:
        self._secret = secret
        self._tokens = tokens
        self._limits = limits
        self._refusals = refusals
        catcher = _Catcher()
        router_pb2_grpc.add_RouterServicer_to_server(servicer, catcher)  # type: ignore[no-untyped-call]
        self._handlers = {name: self._checked(one) for name, one in catcher.handlers.items()}

    def service(self, handler_call_details: Any) -> Any:
        handler = self._handlers.get(handler_call_details.method)
        if handler is None:
            return None
        headers = dict(handler_call_details.invocation_metadata or ())
        why = self._tokens.why_not(headers.get(HEADER), self._secret.cluster)
        if not why:
            return handler
        return self._refusal(why)

    def _checked(self, handler: Any) -> Any:
        """Refuses malformed messages, and calls that raise: gRPC would answer UNKNOWN and log a
        traceback."""
        parse = parser(handler.request_deserializer.__self__)

        async def stream(request: Any, context: Any) -> Any:
            self._limits.proven(context.peer())
            try:
                if isinstance(request, ValueError):
                    raise request
                async for reply in handler.unary_stream(request, context):
                    yield reply
            except Exception as error:
                await self._refusals.refuse(context, error)

        async def answer(request: Any, context: Any) -> Any:
            self._limits.proven(context.peer())
            try:
                if isinstance(request, ValueError):
                    raise request
                return await handler.unary_unary(request, context)
            except Exception as error:
                await self._refusals.refuse(context, error)

        if handler.response_streaming:
            return handler._replace(request_deserializer=parse, unary_stream=stream)
        return handler._replace(request_deserializer=parse, unary_unary=answer)

    def _refusal(self, why: str) -> Any:
        async def refuse(requests: Any, context: Any) -> None:
            del requests
            self._limits.spoke(context.peer())
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, why)

        return grpc.stream_stream_rpc_method_handler(refuse)


class _Catcher:
    """Takes the handlers by method, so that gRPC gets none that bypasses the gate."""

    def __init__(self) -> None:
        self.handlers: dict[str, Any] = {}

    def add_generic_rpc_handlers(self, handlers: Any) -> None:
        """Ignored: they are the same."""

    def add_registered_method_handlers(self, name: str, handlers: Any) -> None:
        self.handlers |= {f"/{name}/{method}": handler for method, handler in handlers.items()}
