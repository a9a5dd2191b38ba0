"""An interceptor before the service: reads no message before its caller has proved its identity.

gRPC has one size limit for all messages of a server, and members send large ones. It also reads the
message before it runs a unary method, and waits for it without a timeout. So strangers could make
the daemon hold gigabytes, and occupy every concurrent call. Hence a call without a session ends at
its headers. A handshake has no session. Its request is in the headers, which gRPC limits to 16 KiB.
"""

from __future__ import annotations

import logging
from typing import Any

import grpc
import grpc.aio

from peercached.peer.rpc.auth import HANDSHAKE_KEY, SESSION_KEY, Sessions
from peercached.peer.rpc.connection_limits import ConnectionLimits, host_of
from peercached.peer.rpc.parse import parser
from peercached.peer.server.handshakes import Handshakes
from peercached.peer.server.refusals import Refusals
from peercached.proto import peer_pb2 as pb
from peercached.proto import peer_pb2_grpc

log = logging.getLogger(__name__)

_HANDSHAKE = "/peercached.peer.v1.Peer/Handshake"


class AuthInterceptor(grpc.GenericRpcHandler):  # type: ignore[type-arg]
    """Wraps the handlers of the Peer service. On the event loop's thread."""

    def __init__(
        self,
        handshakes: Handshakes,
        sessions: Sessions,
        refusals: Refusals,
        limits: ConnectionLimits,
    ) -> None:
        self._handlers: grpc.GenericRpcHandler[Any, Any] | None = None
        self._checked: dict[str, Any] = {}  # by method, made when first called
        self._handshakes = handshakes
        self._sessions = sessions
        self._refusals = refusals
        self._limits = limits
        self.unauthenticated = 0

    def stand_before(self, servicer: peer_pb2_grpc.PeerServicer) -> AuthInterceptor:
        catcher = _Catcher()
        peer_pb2_grpc.add_PeerServicer_to_server(servicer, catcher)  # type: ignore[no-untyped-call]
        self._handlers = catcher.handlers
        return self

    def service(self, handler_call_details: Any) -> Any:
        handler = self._handlers and self._handlers.service(handler_call_details)
        if handler is None:
            return None
        method = handler_call_details.method
        headers = dict(handler_call_details.invocation_metadata or ())
        if method == _HANDSHAKE:
            return self._handshake(headers.get(HANDSHAKE_KEY, b""))
        session = headers.get(SESSION_KEY)
        if session and self._sessions.find(session) is not None:
            if method not in self._checked:
                self._checked[method] = self._check(handler)
            return self._checked[method]
        self.unauthenticated += 1
        return _unknown if session else self._nobody()

    def _check(self, handler: Any) -> Any:
        """Refuses malformed messages, and unary calls that raise: gRPC would answer UNKNOWN and log
        a traceback."""
        parse = parser(handler.request_deserializer.__self__)

        async def answer(request: Any, context: Any) -> Any:
            try:
                if isinstance(request, ValueError):
                    raise request
                return await handler.unary_unary(request, context)
            except Exception as error:
                await self._refusals.refuse(context, error)

        return handler._replace(request_deserializer=parse, unary_unary=answer)

    def _nobody(self) -> Any:
        async def refuse(requests: Any, context: Any) -> None:
            del requests
            self._limits.spoke(context.peer())
            log.warning("refused a call from %s: it has no session", host_of(context.peer()))
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "this call has no session")

        return grpc.stream_stream_rpc_method_handler(refuse)

    def _handshake(self, packed: bytes) -> Any:
        """`packed` is empty if the caller's protocol (13 or older) sends it as a message."""

        async def answer(requests: Any, context: Any) -> Any:
            del requests
            self._limits.spoke(context.peer())
            request = parser(pb.HandshakeRequest)(packed)
            if isinstance(request, ValueError):
                await self._refusals.refuse(context, request)
            return await self._handshakes.answer(request, context)

        return grpc.stream_unary_rpc_method_handler(
            answer, response_serializer=pb.HandshakeReply.SerializeToString
        )


async def _refuse_unknown(requests: Any, context: Any) -> None:
    # Most likely our previous process gave out this session: the caller repeats the handshake.
    del requests
    await context.abort(grpc.StatusCode.UNAUTHENTICATED, "this session is not known here")


_unknown = grpc.stream_stream_rpc_method_handler(_refuse_unknown)


class _Catcher:
    def __init__(self) -> None:
        self.handlers: grpc.GenericRpcHandler[Any, Any] | None = None

    def add_generic_rpc_handlers(self, handlers: Any) -> None:
        (self.handlers,) = handlers

    def add_registered_method_handlers(self, name: str, handlers: Any) -> None:
        """Ignored: handlers registered by method would bypass the interceptor."""
