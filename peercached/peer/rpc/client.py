"""Calls to peers: one channel per address, a handshake when needed, a timeout on every call."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Awaitable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import grpc
import grpc.aio
from google.protobuf.message_factory import GetMessageClass

from peercached.directory.placement import Change, Placement
from peercached.membership import NodeAddress
from peercached.news import Event, News
from peercached.peer.rpc import wire
from peercached.peer.rpc.auth import (
    HANDSHAKE_KEY,
    NONCE_BYTES,
    OWES_KEY,
    PROTOCOL_OLDEST,
    PROTOCOL_VERSION,
    SESSION_KEY,
    TOKEN_BYTES,
    AuthError,
    Claim,
    OtherProtocol,
    Secret,
    agreed_protocol,
)
from peercached.peer.rpc.failures import (
    CallFailed,
    ClosedHere,
    Disconnected,
    Malformed,
    Misfit,
    Refused,
    TimedOut,
    Unreachable,
    WrongProcess,
    misfit,
    sentence,
)
from peercached.peer.rpc.heads import Heads
from peercached.peer.rpc.parse import parser
from peercached.peer.rpc.tasks import Tasks
from peercached.peer.rpc.tls import Tls
from peercached.proto import peer_pb2 as pb
from peercached.removals.debts import Debts
from peercached.timeout import within

_T = TypeVar("_T")

SERVICE = pb.DESCRIPTOR.services_by_name["Peer"]

# After the cluster secret has changed: handshakes at a time, and the pause after a failed one.
SHAKE_AGAIN_MAX = 16
SHAKE_AGAIN_FIRST_S = 0.5
SHAKE_AGAIN_LAST_S = 10.0

CHANNEL_OPTIONS: list[tuple[str, Any]] = [
    ("grpc.max_receive_message_length", wire.MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", wire.MESSAGE_BYTES_MAX),
    # Connect to peers directly even if http_proxy is set.
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),
    # gRPC's default backoff grows to two minutes: a restarted peer would stay unreachable.
    ("grpc.initial_reconnect_backoff_ms", 100),
    # Also the timeout of the first attempt, so it must suffice for TLS and a busy peer.
    ("grpc.min_reconnect_backoff_ms", 500),
    ("grpc.max_reconnect_backoff_ms", 1000),
    # Detect a cut link within seconds even on an idle stream.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 2000),
    ("grpc.http2.max_pings_without_data", 0),
]

DISCONNECTED = (grpc.ChannelConnectivity.CONNECTING, grpc.ChannelConnectivity.TRANSIENT_FAILURE)


@dataclass(frozen=True)
class OwnSide:
    """This node's side of all its links. `settings`: see config/shared.py. Processes are told of
    the `debts` that they have."""

    placement: Placement
    secret: Secret
    tls: Tls | None
    timeout_s: float
    settings: Sequence[str] = ()
    heads: Heads | None = None
    debts: Debts | None = None
    news: News = field(default_factory=News)

    @property
    def address(self) -> NodeAddress:
        return self.placement.own.address

    def name_at(self, endpoint: str) -> str:
        """The name in the certificate there; empty if it is the address."""
        if (member := self.placement.member_at(endpoint)) is not None:
            return member.name
        return self.heads.name_of(endpoint) if self.heads is not None else ""

    def must_tell(self, process: NodeAddress | None) -> bool:
        """Whether to tell that process that it may have missed removals."""
        return self.debts is not None and process is not None and self.debts.must_tell(process)


@dataclass(frozen=True)
class SessionBegun(Event):
    """A handshake has finished. Each session has its own token for the data port."""

    link: PeerLink


@dataclass(frozen=True)
class SessionLost(Event):
    """A session has ended because its secret is accepted no more."""

    link: PeerLink


class PeerLink:
    """The link to one address. `identity` is the process that answered the last handshake. Its
    restart ends the session, and the next handshake sets `identity` again. `claimed` is who
    something there has said that it is, without proof."""

    def __init__(self, endpoint: str, own: OwnSide) -> None:
        self.endpoint = endpoint
        self._own = own
        self._secret = own.secret
        self._tls = tls = own.tls
        self._timeout_s = own.timeout_s
        self.identity: NodeAddress | None = None
        self.claimed: NodeAddress | None = None
        self._proved = b""  # the cluster secret of the last handshake
        self.read_token = b""
        self.read_sealed = False  # its data port speaks TLS
        self.we_owe = False  # it says that we may have missed removals
        self.metadata: tuple[tuple[str, str], ...] = ()
        self._handshake: asyncio.Task[None] | None = None
        self._closed = False
        self._closing: set[asyncio.Task[None]] = set()
        self.is_plain = tls is None or not tls.calls
        self._open()

    def _open(self) -> None:
        tls = self._tls
        self._generation = tls.generation if tls is not None else 0
        name = self._own.name_at(self.endpoint)
        named = [("grpc.ssl_target_name_override", name)] if name else []
        self._channel = (
            grpc.aio.insecure_channel(self.endpoint, options=CHANNEL_OPTIONS)
            if tls is None or self.is_plain
            else grpc.aio.secure_channel(
                self.endpoint, tls.channel_credentials(), options=[*CHANNEL_OPTIONS, *named]
            )
        )
        self._stub = _Stub(self._channel)

    @property
    def stub(self) -> Any:
        """Ask for it before each call. An open connection keeps its old certificate; the next
        connection uses the current one. While TLS is being switched on, a failed connection is
        followed by one of the other kind."""
        if self._must_change_kind():
            self.is_plain = not self.is_plain
            self._reopen()
        elif (
            self._tls is not None
            and self._generation != self._tls.generation
            and not self._closed
            and self._channel.get_state() is not grpc.ChannelConnectivity.READY
        ):
            self._reopen()
        return self._stub

    def _must_change_kind(self) -> bool:
        tls = self._tls
        if tls is None or self._closed:
            return False
        if not (tls.calls_plain if self.is_plain else tls.calls):
            return True
        failed = self._channel.get_state() is grpc.ChannelConnectivity.TRANSIENT_FAILURE
        return failed and (tls.calls if self.is_plain else tls.calls_plain)

    def _reopen(self) -> None:
        # Calls on the old channel may still finish within their timeout.
        for task in (asyncio.ensure_future(self._channel.close(self._timeout_s)), self._handshake):
            if task is not None:
                self._closing.add(task)
                task.add_done_callback(self._closing.discard)
        self._handshake = None
        self._open()

    def connect_anew(self) -> None:
        """The next call makes a connection and a session of its own."""
        if not self._closed:
            self.forget_session()
            self._reopen()

    def try_at_once(self) -> None:
        """Reconnects now, without waiting for the backoff or for an attempt under way. Call it
        when there is a sign that the peer is up."""
        if not self._closed and self._channel.get_state() in DISCONNECTED:
            self._reopen()

    async def close(self) -> None:
        self._closed = True
        if self._handshake is not None:
            self._handshake.cancel()
        await self._channel.close(None)

    @property
    def calls_plain(self) -> bool:
        """Whether calls go without TLS. Without a connection, the next one decides."""
        is_open = self._channel.get_state() is grpc.ChannelConnectivity.READY
        return self.is_plain and bool(self.metadata) and is_open

    async def ready(self, expect: NodeAddress | None = None) -> None:
        """Does the handshake unless a session exists. Unreachable or AuthError; WrongProcess if
        another process than `expect` answers."""
        if not self.metadata:
            await self._once()
        if expect is None or self._is(expect):
            return
        # The session may be the previous process's, so do one new handshake.
        self.forget_session()
        await self._once()
        if not self._is(expect):
            raise WrongProcess(f"{expect.node_id} at {self.endpoint} has restarted")

    def _is(self, expect: NodeAddress) -> bool:
        return self.identity is not None and self.identity.same_process(expect)

    async def _once(self) -> None:
        if self._handshake is None or self._handshake.done():
            self._handshake = asyncio.ensure_future(self._shake())
            # Retrieve the error: asyncio complains if it fails after all waiters gave up.
            self._handshake.add_done_callback(lambda task: task.cancelled() or task.exception())
        # Shielded: one caller's timeout must not cancel a handshake that others await.
        await self._unless_closed(asyncio.shield(self._handshake))

    async def ready_within(self, deadline_s: float) -> None:
        """Like ready(); TimedOut after `deadline_s` seconds."""
        try:
            await within(deadline_s, self.ready())
        except asyncio.TimeoutError as error:
            raise TimedOut(self.endpoint, deadline_s) from error

    # --- a new cluster secret

    @property
    def proves_older(self) -> bool:
        """Whether its session, or a handshake under way, may have another secret than this node
        proves now."""
        shakes = self._handshake is not None and not self._handshake.done()
        return (
            not self._closed
            and self._proved != self._secret.value
            and (shakes or bool(self.metadata))
        )

    @property
    def is_dropped(self) -> bool:
        """Whether its server has proved only a secret that is not accepted any more."""
        return bool(self.metadata) and self._proved not in self._secret.cluster.accepted

    async def shake_again(self) -> None:
        """A new handshake. Calls go on with the present session meanwhile."""
        before = self._handshake
        await self._once()
        if self._handshake is before:  # it had begun earlier, perhaps with another secret
            await self._once()

    def forget_session(self) -> None:
        self.metadata = ()

    async def _shake(self) -> None:
        self.claimed = None
        nonce = secrets.token_bytes(NONCE_BYTES)
        own = self._own.address
        hello = pb.HandshakeRequest(
            protocol=PROTOCOL_VERSION,
            oldest_protocol=PROTOCOL_OLDEST,
            caller=wire.address_message(own),
            nonce=nonce,
            has_tls=self._tls is not None and self._tls.calls,
        )
        try:
            first = await self._greet(hello)
        except Disconnected:
            if not self._must_change_kind():
                raise
            first = await self._greet(hello)
        try:
            protocol = agreed_protocol(first.protocol, first.protocol)
        except OtherProtocol as error:
            raise AuthError(f"{self.endpoint}: {error}") from error
        self.claimed = server = self._checked(first)
        hello.protocol = protocol
        hello.server_nonce = first.server_nonce
        hello.settings.extend(self._own.settings)
        hello.proof = self._secret.proof(
            Claim("caller", own, nonce, first.server_nonce, server.key, protocol)
        )
        second = await self._greet(hello)
        if self._checked(second) != server:
            raise AuthError(f"{self.endpoint} is another node from one answer to the next")
        proved = self._secret.check(
            second.proof, Claim("server", server, nonce, first.server_nonce, own.key, protocol)
        )
        if len(second.session) != TOKEN_BYTES or len(second.read_token) != TOKEN_BYTES:
            raise AuthError(f"{self.endpoint} gave no session")
        self.identity = server
        self._proved = proved
        self.read_token = second.read_token
        self.read_sealed = second.read_sealed
        self.we_owe = second.owes
        self.metadata = ((SESSION_KEY, second.session.hex()),)
        self._own.news.post(SessionBegun(self))

    def _checked(self, reply: pb.HandshakeReply) -> NodeAddress:
        """The address that the server claims. AuthError if our view contradicts it."""
        try:
            server = wire.address_of(reply.server)
        except ValueError as error:
            raise AuthError(f"{self.endpoint} gave no valid address of its own: {error}") from error
        member = self._own.placement.member_at(self.endpoint)
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
        # A caller may use a link that it got before the node left. No caller handles gRPC's own
        # error for a closed channel.
        if self._closed:
            raise ClosedHere(f"{self.endpoint} is no member any more")

    async def _unless_closed(self, work: Awaitable[_T]) -> _T:
        """ClosedHere if this end closes the channel: gRPC raises CancelledError then, as if the
        caller itself were cancelled."""
        try:
            return await work
        except asyncio.CancelledError:
            cancelling = getattr(asyncio.current_task(), "cancelling", None)
            callers_own = cancelling() > 0 if cancelling else not self._closed  # Python 3.10
            if callers_own:
                raise
            raise ClosedHere(f"{self.endpoint}: the connection was closed at this end") from None

    def _parsed(self, answer: Any) -> Any:
        if isinstance(answer, ValueError):
            raise Malformed(f"{self.endpoint} gave a malformed answer: {answer}") from answer
        return answer

    async def _greet(self, request: pb.HandshakeRequest) -> pb.HandshakeReply:
        self._check_open()
        try:
            reply: pb.HandshakeReply = self._parsed(
                await self._unless_closed(
                    self.stub.Handshake(
                        pb.HandshakeRequest(),
                        timeout=self._timeout_s,
                        metadata=((HANDSHAKE_KEY, request.SerializeToString()),),
                    )
                )
            )
        except Malformed as error:
            raise Misfit(str(error)) from error
        except grpc.aio.AioRpcError as error:
            if error.code() in (
                grpc.StatusCode.UNAUTHENTICATED,
                grpc.StatusCode.PERMISSION_DENIED,
                grpc.StatusCode.FAILED_PRECONDITION,
            ):
                raise AuthError(f"{self.endpoint}: {error.details()}") from error
            failure = failure_of(self.endpoint, error.code(), error.details(), self._timeout_s)
            if not self.identity and (why := misfit(error.details() or "")):
                failure = Misfit(f"{self.endpoint}: {why}")
            # Whoever refuses the handshake in any other way cannot be reached either.
            unreachable = isinstance(failure, Unreachable)
            raise (failure if unreachable else Misfit(str(failure))) from error
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
        """One call; if the peer does not know our session, one new handshake and a retry.

        `expect`: the process that must answer. `last`: this node leaves, so make no new session.
        `timeout_s` can only shorten rpc_timeout_ms; `patience_s` replaces it, for slow calls.
        Raises CallFailed, or ValueError for a malformed handshake."""
        wait_s = self._timeout_s if timeout_s is None else min(timeout_s, self._timeout_s)
        if patience_s is not None:
            wait_s = patience_s
        for attempt in (0, 1):
            if not self.metadata or expect is not None:
                await self.ready(expect)
            metadata = self.metadata
            told = ((OWES_KEY, "1"),) if self._own.must_tell(self.identity) else ()
            self._check_open()
            try:
                call = getattr(self.stub, method)(request, timeout=wait_s, metadata=metadata + told)
                return self._parsed(await self._unless_closed(call))
            except grpc.aio.AioRpcError as error:
                unknown = error.code() is grpc.StatusCode.UNAUTHENTICATED
                if unknown and attempt == 0 and not last:
                    if self.metadata == metadata:
                        self.forget_session()
                    continue
                raise failure_of(self.endpoint, error.code(), error.details(), wait_s) from error
        raise AssertionError("unreachable")

    async def call_within(
        self, method: str, request: Any, deadline_s: float, expect: NodeAddress | None = None
    ) -> Any:
        """Like call(), but a handshake counts, too: TimedOut after `deadline_s` seconds in all."""
        try:
            return await within(deadline_s, self.call(method, request, deadline_s, expect))
        except asyncio.TimeoutError as error:
            raise TimedOut(self.endpoint, deadline_s) from error


class _Stub:
    """The calls that a channel can make, each made on first use: a link needs few of them."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._channel = channel

    def __getattr__(self, name: str) -> Any:
        if (method := SERVICE.methods_by_name.get(name)) is None:
            raise AttributeError(f"{SERVICE.full_name} has no call {name}")
        request: Any = GetMessageClass(method.input_type)
        answer: Any = GetMessageClass(method.output_type)
        call = self._channel.unary_unary(
            f"/{SERVICE.full_name}/{name}",
            request_serializer=request.SerializeToString,
            response_deserializer=parser(answer),
        )
        setattr(self, name, call)
        return call


def failure_of(
    endpoint: str, code: grpc.StatusCode, details: str | None, budget_s: float
) -> CallFailed:
    """The failure of a call with that status, which had `budget_s` seconds."""
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return TimedOut(endpoint, budget_s)
    if code is grpc.StatusCode.UNAVAILABLE:
        return Disconnected(sentence(endpoint, code, details or ""))
    return Refused(endpoint, code, details or "")


class Peers:
    """The links by address. A link is made on first use."""

    def __init__(self, own: OwnSide) -> None:
        self._own = own
        self._links: dict[str, PeerLink] = {}
        self._shaking = asyncio.Semaphore(SHAKE_AGAIN_MAX)
        self._shaking_again: set[PeerLink] = set()
        self._tasks = Tasks()

    def secret_changed(self) -> list[str]:
        """Proves the new secret to all peers. Their sessions go on meanwhile. Ends the sessions of
        peers that have proved only a secret which is not accepted any more, and returns their
        endpoints."""
        dropped = []
        for link in self._links.values():
            if link.is_dropped:
                dropped.append(link.endpoint)
                link.forget_session()
                self._own.news.post(SessionLost(link))
            elif link.proves_older and link not in self._shaking_again:
                self._shaking_again.add(link)
                self._tasks.spawn(self._shake_again(link))
        return dropped

    def tls_mode_changed(self) -> None:
        for link in self._links.values():
            _ = link.stub  # a link of a kind that is not allowed any more changes

    def plain(self) -> list[str]:
        """Node ids of the peers that this node calls without TLS, ascending."""
        links = (link for link in self._links.values() if link.calls_plain)
        return sorted({link.identity.node_id for link in links if link.identity is not None})

    async def _shake_again(self, link: PeerLink) -> None:
        pause_s = SHAKE_AGAIN_FIRST_S
        try:
            while link.proves_older:
                async with self._shaking:
                    with contextlib.suppress(CallFailed, ValueError):
                        await link.shake_again()
                if link.proves_older:
                    await asyncio.sleep(pause_s)
                    pause_s = min(2 * pause_s, SHAKE_AGAIN_LAST_S)
        finally:
            self._shaking_again.discard(link)

    def view_changed(self, change: Change, others: Collection[str]) -> None:
        """Keeps the links to members and to these other endpoints."""
        for node in change.added:
            self.try_at_once(node.address.endpoint)
        wanted = {member.address.endpoint for member in change.view.members}
        for link in self._keep_only(wanted.union(others)):
            self._tasks.spawn(link.close())

    def link(self, endpoint: str) -> PeerLink:
        link = self._links.get(endpoint)
        if link is None:
            link = self._links[endpoint] = PeerLink(endpoint, self._own)
        return link

    def try_at_once(self, endpoint: str) -> None:
        """See PeerLink. Does nothing for an address without a link."""
        if (link := self._links.get(endpoint)) is not None:
            link.try_at_once()

    def _keep_only(self, endpoints: set[str]) -> list[PeerLink]:
        """Forgets all other links and returns them; the caller closes them."""
        gone = [endpoint for endpoint in self._links if endpoint not in endpoints]
        return [self._links.pop(endpoint) for endpoint in gone]

    async def close(self) -> None:
        self._tasks.cancel()
        await asyncio.gather(*(link.close() for link in self._keep_only(set())))
