"""An interceptor before the service: reads nothing of a call before its session is known.

gRPC reads a call's message before it runs a unary method, and waits for it without a timeout. So
strangers could occupy every concurrent call. The interceptor ends a call without a session at its
headers. Handshakes have no session, so they get a timeout and a limit per address.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from peercached.peer.rpc.auth import SESSION_KEY
from peercached.peer.rpc.connection_limits import ConnectionLimits, host_of
from peercached.proto import peer_pb2 as pb

log = logging.getLogger(__name__)

HANDSHAKE_READ_S = 3.0
# Being read or answered. Each message may reach gRPC's size limit, so this bounds the memory.
HANDSHAKES_AT_ONCE_MAX = 64
HANDSHAKES_AT_ONCE_PER_HOST_MAX = 16
# Waiting for a turn, from one address; more are refused.
HANDSHAKES_WAITING_PER_HOST_MAX = 256

_HANDSHAKE = "/peercached.peer.v1.Peer/Handshake"


class AuthInterceptor(grpc.GenericRpcHandler):  # type: ignore[type-arg]
    """Wraps the handlers of the Peer service. On the event loop's thread."""

    def __init__(
        self,
        shake: Callable[[Any, Any], Any],
        known: Callable[[str], bool],
        refuse: Callable[[Any, Exception], Awaitable[None]],
        limits: ConnectionLimits,
    ) -> None:
        """`shake` answers a handshake. `known` tells whether we gave out this session. `refuse`
        ends a call with that error."""
        self._handlers: grpc.GenericRpcHandler[Any, Any] | None = None
        self._checked: dict[str, Any] = {}  # by method, made when first called
        self._shake = shake
        self._known = known
        self._refuse = refuse
        self._limits = limits
        self._turn = asyncio.Semaphore(HANDSHAKES_AT_ONCE_MAX)
        self._hosts: dict[str, _Host] = {}
        self.unauthenticated = 0
        self.slow_handshakes = 0
        self.crowded_handshakes = 0

    def stand_before(self, add: Callable[[Any, Any], None], servicer: Any) -> AuthInterceptor:
        """Wraps the handlers that the generated `add` function registers for `servicer`."""
        catcher = _Catcher()
        add(servicer, catcher)
        self._handlers = catcher.handlers
        return self

    def service(self, handler_call_details: Any) -> Any:
        handler = self._handlers and self._handlers.service(handler_call_details)
        if handler is None:
            return None
        if handler_call_details.method == _HANDSHAKE:
            return grpc.stream_unary_rpc_method_handler(
                self._handshake,
                request_deserializer=_parser(pb.HandshakeRequest.FromString),
                response_serializer=pb.HandshakeReply.SerializeToString,
            )
        session = ""
        for key, value in handler_call_details.invocation_metadata or ():
            if key == SESSION_KEY:
                session = value
                if self._known(session):
                    method = handler_call_details.method
                    if method not in self._checked:
                        self._checked[method] = self._check(handler)
                    return self._checked[method]
        self.unauthenticated += 1
        return _unknown if session else self._nobody()

    def _check(self, handler: Any) -> Any:
        """Refuses malformed messages: gRPC would answer UNKNOWN and log a traceback."""
        parse = _parser(handler.request_deserializer)
        if handler.request_streaming:  # the servicer's read raises the error
            return handler._replace(request_deserializer=parse)

        def parse_later(data: bytes) -> Any:
            try:
                return parse(data)
            except ValueError as error:
                return error

        async def answer(request: Any, context: Any) -> Any:
            if isinstance(request, ValueError):
                await self._refuse(context, request)
            return await handler.unary_unary(request, context)

        return handler._replace(request_deserializer=parse_later, unary_unary=answer)

    def _nobody(self) -> Any:
        async def refuse(requests: Any, context: Any) -> None:
            del requests
            self._limits.spoke(context.peer())
            log.warning("refused a call from %s: it has no session", host_of(context.peer()))
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "this call has no session")

        return grpc.stream_stream_rpc_method_handler(refuse)

    async def _handshake(self, requests: Any, context: Any) -> Any:
        peer = context.peer()
        name = host_of(peer)
        self._limits.spoke(peer)
        host = self._hosts.setdefault(name, _Host())
        host.here += 1
        try:
            if host.here > HANDSHAKES_WAITING_PER_HOST_MAX:
                self.crowded_handshakes += 1
                log.warning("refused a handshake from %s: too many at once", name)
                await context.abort(
                    grpc.StatusCode.RESOURCE_EXHAUSTED, "too many handshakes at once"
                )
            async with host.turn, self._turn:
                try:
                    request = await asyncio.wait_for(anext(aiter(requests)), HANDSHAKE_READ_S)
                except ValueError as error:
                    await self._refuse(context, error)
                except StopAsyncIteration:
                    await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "an empty handshake")
                except asyncio.TimeoutError:
                    self.slow_handshakes += 1
                    log.warning(
                        "refused a handshake from %s: its request was not complete within %g s",
                        name,
                        HANDSHAKE_READ_S,
                    )
                    await context.abort(
                        grpc.StatusCode.DEADLINE_EXCEEDED, "the handshake did not come in time"
                    )
                return await self._shake(request, context)
        finally:
            host.here -= 1
            if not host.here:
                del self._hosts[name]


def _parser(parse: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    """A parser that raises ValueError for malformed bytes."""

    def parsed(data: bytes) -> Any:
        try:
            return parse(data)
        except DecodeError as error:
            what = f"{len(data)} bytes that are no message of this call: {error}"
            raise ValueError(what) from error

    return parsed


class _Host:
    """The handshakes under way from one address."""

    def __init__(self) -> None:
        self.here = 0
        self.turn = asyncio.Semaphore(HANDSHAKES_AT_ONCE_PER_HOST_MAX)


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
