"""Calls to peers: one channel per address, a handshake when needed, a deadline on everything."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import grpc
import grpc.aio

from peercached.membership import NodeAddress
from peercached.peer.rpc import wire
from peercached.peer.rpc.auth import (
    NONCE_BYTES,
    PROTOCOL_VERSION,
    SESSION_KEY,
    TOKEN_BYTES,
    AuthError,
    Claim,
    Secret,
)
from peercached.peer.rpc.failures import (
    ClosedHere,
    Disconnected,
    TimedOut,
    Unreachable,
    WrongProcess,
)
from peercached.peer.rpc.tls import Tls
from peercached.proto import peer_pb2 as pb
from peercached.proto import peer_pb2_grpc

_T = TypeVar("_T")

CHANNEL_OPTIONS: list[tuple[str, Any]] = [
    ("grpc.max_receive_message_length", wire.MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", wire.MESSAGE_BYTES_MAX),
    # Peers are reached directly, whatever http_proxy says.
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),
    # gRPC's own back-off goes up to two minutes: a peer that is back would stay unreachable.
    ("grpc.initial_reconnect_backoff_ms", 100),
    # Also how long the first attempt may take, with TLS and a busy peer.
    ("grpc.min_reconnect_backoff_ms", 500),
    ("grpc.max_reconnect_backoff_ms", 1000),
    # A cut link shows within seconds even on a stream that is idle.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 2000),
    ("grpc.http2.max_pings_without_data", 0),
]

DISCONNECTED = (grpc.ChannelConnectivity.CONNECTING, grpc.ChannelConnectivity.TRANSIENT_FAILURE)
# Errors that say something of the peer's health, not of the call.
UNREACHABLE = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)


class PeerLink:
    """One address. `identity` is who answered the last handshake there; a restart of that
    process ends the session, and the next handshake tells who is there now."""

    def __init__(
        self,
        endpoint: str,
        own: Callable[[], NodeAddress],
        secret: Secret,
        tls: Tls | None,
        timeout_s: float,
        on_session: Callable[[PeerLink], None],
        member_at: Callable[[str], NodeAddress | None] = lambda _: None,
    ) -> None:
        """`member_at`: that of our view which is to be called at this endpoint."""
        self.endpoint = endpoint
        self._member_at = member_at
        self.identity: NodeAddress | None = None
        self.read_token = b""
        self.read_sealed = False  # its data port speaks TLS
        self.metadata: tuple[tuple[str, str], ...] = ()
        self._own = own
        self._secret = secret
        self._timeout_s = timeout_s
        self._on_session = on_session
        self._tls = tls
        self._handshake: asyncio.Task[None] | None = None
        self._closed = False
        self._closing: set[asyncio.Task[None]] = set()
        self._open()

    def _open(self) -> None:
        tls = self._tls
        self._generation = tls.generation if tls is not None else 0
        self._channel = (
            grpc.aio.insecure_channel(self.endpoint, options=CHANNEL_OPTIONS)
            if tls is None
            else grpc.aio.secure_channel(
                self.endpoint, tls.channel_credentials(), options=CHANNEL_OPTIONS
            )
        )
        self._stub: Any = peer_pb2_grpc.PeerStub(self._channel)  # type: ignore[no-untyped-call]

    @property
    def stub(self) -> Any:
        """For one call. A connection that stands goes on with the certificate that it began with;
        the next one is made with that of now."""
        if (
            self._tls is not None
            and self._generation != self._tls.generation
            and not self._closed
            and self._channel.get_state() is not grpc.ChannelConnectivity.READY
        ):
            self._reopen()
        return self._stub

    def _reopen(self) -> None:
        # Calls that wait in the old channel keep their time.
        for task in (asyncio.ensure_future(self._channel.close(self._timeout_s)), self._handshake):
            if task is not None:
                self._closing.add(task)
                task.add_done_callback(self._closing.discard)
        self._handshake = None
        self._open()

    def try_at_once(self) -> None:
        """A process is there that was not: neither the pause after attempts that failed, nor an
        attempt that began before, need be waited for."""
        if not self._closed and self._channel.get_state() in DISCONNECTED:
            self._reopen()

    async def close(self) -> None:
        self._closed = True
        if self._handshake is not None:
            self._handshake.cancel()
        await self._channel.close(None)

    async def ready(self, expect: NodeAddress | None = None) -> None:
        """Shakes hands unless that is done. Unreachable or AuthError; Unreachable also when
        another process than `expect` is there."""
        if not self.metadata:
            await self._once()
        if expect is None or self._is(expect):
            return
        # The session may be one of the process before.
        self.forget_session()
        await self._once()
        if not self._is(expect):
            raise WrongProcess(f"{expect.node_id} at {self.endpoint} has restarted")

    def _is(self, expect: NodeAddress) -> bool:
        return self.identity is not None and self.identity.same_process(expect)

    async def _once(self) -> None:
        if self._handshake is None or self._handshake.done():
            self._handshake = asyncio.ensure_future(self._shake())
            # All who waited may have given up before it fails; the next call says why again.
            self._handshake.add_done_callback(lambda task: task.cancelled() or task.exception())
        # Shielded: one caller's deadline must not end what others wait for too.
        await self._unless_closed(asyncio.shield(self._handshake))

    def forget_session(self) -> None:
        self.metadata = ()

    async def _shake(self) -> None:
        nonce = secrets.token_bytes(NONCE_BYTES)
        own = self._own()
        first = await self._greet(
            pb.HandshakeRequest(
                protocol=PROTOCOL_VERSION, caller=wire.address_message(own), nonce=nonce
            )
        )
        if first.protocol != PROTOCOL_VERSION:
            raise AuthError(
                f"{self.endpoint} speaks protocol {first.protocol}, this node {PROTOCOL_VERSION}: "
                "run the same version of peercached on all nodes"
            )
        server = self._checked(first)
        second = await self._greet(
            pb.HandshakeRequest(
                protocol=PROTOCOL_VERSION,
                caller=wire.address_message(own),
                nonce=nonce,
                server_nonce=first.server_nonce,
                proof=self._secret.proof(
                    Claim("caller", own, nonce, first.server_nonce, server.key)
                ),
            )
        )
        if self._checked(second) != server:
            raise AuthError(f"{self.endpoint} is another node from one answer to the next")
        self._secret.check(
            second.proof, Claim("server", server, nonce, first.server_nonce, own.key)
        )
        if len(second.session) != TOKEN_BYTES or len(second.read_token) != TOKEN_BYTES:
            raise AuthError(f"{self.endpoint} gave no session")
        self.identity = server
        self.read_token = second.read_token
        self.read_sealed = second.read_sealed
        self.metadata = ((SESSION_KEY, second.session.hex()),)
        self._on_session(self)

    def _checked(self, reply: pb.HandshakeReply) -> NodeAddress:
        """Who says that it answers there. AuthError if it cannot be, as far as we know."""
        try:
            server = wire.address_of(reply.server)
        except ValueError as error:
            raise AuthError(f"{self.endpoint} gave no valid address of its own: {error}") from error
        member = self._member_at(self.endpoint)
        if member is None:
            return server
        same_start = server.incarnation == member.incarnation
        if server.endpoint != self.endpoint or (same_start and not server.same_process(member)):
            raise AuthError(
                f"{self.endpoint} says it is {server.node_id} at {server.endpoint}, and "
                f"{member.node_id} is there"
            )
        return server

    def _check_open(self) -> None:
        # Whoever took the link before its node left may use it afterwards: for them the node is
        # gone, and gRPC's own error for a closed channel is one that nobody expects.
        if self._closed:
            raise ClosedHere(f"{self.endpoint} is no member any more")

    async def _unless_closed(self, work: Awaitable[_T]) -> _T:
        """Closing ends what is under way with CancelledError, as if the caller were to end."""
        try:
            return await work
        except asyncio.CancelledError:
            cancelling = getattr(asyncio.current_task(), "cancelling", None)
            callers_own = cancelling() > 0 if cancelling else not self._closed  # Python 3.10
            if callers_own:
                raise
            raise ClosedHere(f"{self.endpoint}: the connection was closed at this end") from None

    async def _greet(self, request: pb.HandshakeRequest) -> pb.HandshakeReply:
        self._check_open()
        try:
            reply: pb.HandshakeReply = await self._unless_closed(
                self.stub.Handshake(request, timeout=self._timeout_s)
            )
        except grpc.aio.AioRpcError as error:
            if error.code() in (
                grpc.StatusCode.UNAUTHENTICATED,
                grpc.StatusCode.PERMISSION_DENIED,
                grpc.StatusCode.FAILED_PRECONDITION,
            ):
                raise AuthError(f"{self.endpoint}: {error.details()}") from error
            raise failure_of(self.endpoint, error, self._timeout_s) from error
        return reply

    async def call(
        self,
        method: str,
        request: Any,
        timeout_s: float | None = None,
        expect: NodeAddress | None = None,
        last: bool = False,
        patience_s: float | None = None,
    ) -> Any:
        """One call, with one new handshake if the session is unknown there. `expect`: the
        process that must answer. `last`: this node leaves, so it makes no new session.
        `patience_s`: how long a call that takes its time may wait, instead of rpc_timeout_ms.
        Unreachable, AuthError, or AioRpcError for a refusal."""
        wait_s = self._timeout_s if timeout_s is None else min(timeout_s, self._timeout_s)
        if patience_s is not None:
            wait_s = patience_s
        for attempt in (0, 1):
            if not self.metadata or expect is not None:
                await self.ready(expect)
            metadata = self.metadata
            self._check_open()
            try:
                call = getattr(self.stub, method)(request, timeout=wait_s, metadata=metadata)
                return await self._unless_closed(call)
            except grpc.aio.AioRpcError as error:
                unknown = error.code() is grpc.StatusCode.UNAUTHENTICATED
                if unknown and attempt == 0 and not last:
                    if self.metadata == metadata:
                        self.forget_session()
                    continue
                if error.code() in UNREACHABLE:
                    raise failure_of(self.endpoint, error, wait_s) from error
                raise
        raise AssertionError("unreachable")


def failure_of(endpoint: str, error: grpc.aio.AioRpcError, budget_s: float) -> Unreachable:
    """Of a call that had `budget_s`, and failed with one of UNREACHABLE."""
    if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
        return TimedOut(endpoint, budget_s)
    return Disconnected(describe(endpoint, error))


def describe(endpoint: str, error: grpc.aio.AioRpcError) -> str:
    """An error for people: gRPC's own details are long and name its source files."""
    details = (error.details() or "").removeprefix("failed to connect to all addresses; last error")
    return f"{endpoint}: {error.code().name.lower()} {details[:200].strip(' :;')}"


class Peers:
    """The links by address, made when first wanted, closed when neither in view nor a head."""

    def __init__(
        self,
        own: Callable[[], NodeAddress],
        secret: Secret,
        tls: Tls | None,
        timeout_s: float,
    ) -> None:
        # Called after each handshake: a new session comes with a new token for the data port.
        self.on_session: Callable[[PeerLink], None] = lambda link: None
        self.member_at: Callable[[str], NodeAddress | None] = lambda _: None
        self._make: Callable[[str], PeerLink] = lambda endpoint: PeerLink(
            endpoint, own, secret, tls, timeout_s, self._session, self.member_at
        )
        self._links: dict[str, PeerLink] = {}

    def _session(self, link: PeerLink) -> None:
        self.on_session(link)

    def link(self, endpoint: str) -> PeerLink:
        link = self._links.get(endpoint)
        if link is None:
            link = self._links[endpoint] = self._make(endpoint)
        return link

    def try_at_once(self, endpoint: str) -> None:
        """See PeerLink; where nobody has wanted a link yet, the first who does makes one."""
        if (link := self._links.get(endpoint)) is not None:
            link.try_at_once()

    def keep_only(self, endpoints: set[str]) -> list[PeerLink]:
        """Returns the others, to be closed."""
        gone = [endpoint for endpoint in self._links if endpoint not in endpoints]
        return [self._links.pop(endpoint) for endpoint in gone]

    async def close(self) -> None:
        await asyncio.gather(*(link.close() for link in self.keep_only(set())))
