"""The Peer service: checks the caller and the message, then calls the node.

Every call but Handshake needs a session. Packed bytes of a wrong length are refused with
INVALID_ARGUMENT and the value. An unknown session is refused with UNAUTHENTICATED; the caller then
repeats the handshake. A unary call that raises is refused by the interceptor (_refuse).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import grpc
import grpc.aio
from grpc.aio import BaseError

from peercached.config.shared import difference
from peercached.directory.epochs import EPOCHS_PER_MESSAGE_MAX
from peercached.directory.layout import DIGEST_BYTES, ROW_BYTES, check_packed
from peercached.membership import NodeAddress
from peercached.peer.channels import ends as channel_ends
from peercached.peer.membership.embedded import wire as member_wire
from peercached.peer.removals.catch_up import RemovalCatchUp
from peercached.peer.removals.member import Removals
from peercached.peer.rpc import wire
from peercached.peer.rpc.auth import (
    OWES_KEY,
    SESSION_KEY,
    AuthError,
    OtherProtocol,
    Session,
    Sessions,
    agreed_protocol,
)
from peercached.peer.rpc.auth_interceptor import AuthInterceptor
from peercached.peer.rpc.certificates import misfit
from peercached.peer.rpc.connection_limits import ConnectionLimits, host_of
from peercached.peer.rpc.failures import Unable
from peercached.peer.rpc.tls import Tls
from peercached.peer.service.local_node import LocalNode
from peercached.peer.service.unlike import OtherSettings, UnlikeSettings
from peercached.proto import peer_pb2 as pb
from peercached.proto import peer_pb2_grpc

log = logging.getLogger(__name__)

Operate = Callable[[NodeAddress, pb.OperateRequest], Awaitable[pb.OperateReply]]


class _Refused(Exception):
    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        super().__init__(details)
        self.code = code
        self.details = details


class PeerServicer(peer_pb2_grpc.PeerServicer):
    def __init__(
        self,
        node: LocalNode,
        removals: Removals,
        catch_up: RemovalCatchUp,
        sessions: Sessions,
        tls: Tls | None,
        read_sealed: bool,
        on_call: Callable[[NodeAddress], None],
        operate: Operate,
        settings: Sequence[str],
    ) -> None:
        """`read_sealed`: the data port speaks TLS too. `on_call` gets the caller of each
        authenticated call. `operate` answers operators' calls (peer/service/relay.py).
        `settings`: see config/shared.py."""
        self._node = node
        self._removals = removals
        self._catch_up = catch_up
        self._sessions = sessions
        self._read_sealed = read_sealed
        self.limits = ConnectionLimits(lambda: tls is not None and tls.serves)
        self.interceptor = AuthInterceptor(
            self.Handshake,
            lambda session: sessions.find(session) is not None,
            self._refuse,
            self.limits,
        )
        self._on_call = on_call
        self._operate = operate
        self._settings = settings
        self.unlike = UnlikeSettings()
        self.malformed = 0
        self.misfits = 0

    async def _refuse(self, context: Any, error: Exception) -> None:
        if isinstance(error, _Refused):
            code, details = error.code, error.details
        elif isinstance(error, ValueError):
            self.malformed += 1
            code, details = grpc.StatusCode.INVALID_ARGUMENT, str(error)
        elif isinstance(error, LookupError):
            code, details = grpc.StatusCode.FAILED_PRECONDITION, str(error)
        elif isinstance(error, Unable):
            code, details = grpc.StatusCode.RESOURCE_EXHAUSTED, str(error)
        elif isinstance(error, BaseError):
            log.debug("a peer's call ended with the server: %s", error)
            return
        else:
            log.error("internal error in a peer's call", exc_info=error)
            code, details = grpc.StatusCode.INTERNAL, f"{type(error).__name__}: {error}"
        await context.abort(code, details)

    def _session(self, context: Any) -> Session:
        metadata = dict(context.invocation_metadata() or ())
        session = self._sessions.find(metadata.get(SESSION_KEY, ""))
        if session is not None:
            self.limits.proven(context.peer())
            self._on_call(session.caller)
            if OWES_KEY in metadata:
                self._catch_up.told(session.caller)
            return session
        # The session ended after the interceptor checked it.
        self.interceptor.unauthenticated += 1
        raise _Refused(grpc.StatusCode.UNAUTHENTICATED, "this session is not known here")

    async def Handshake(self, request: Any, context: Any) -> Any:
        host = host_of(context.peer())
        try:
            return self._shake(request, host, context)
        except AuthError as error:
            log.warning("refused a handshake from %s: %s", host, error)
            refused = _Refused(grpc.StatusCode.PERMISSION_DENIED, str(error))
            await self._refuse(context, refused)
        except (OtherProtocol, OtherSettings) as error:
            log.warning("refused a handshake from %s: %s", host, error)
            refused = _Refused(
                grpc.StatusCode.FAILED_PRECONDITION,
                f"{self._node.address().node_id} refuses this node: {error}",
            )
            await self._refuse(context, refused)
        except Exception as error:
            await self._refuse(context, error)

    def _shake(self, request: pb.HandshakeRequest, host: str, context: Any) -> pb.HandshakeReply:
        own = self._node.address()
        protocol = agreed_protocol(request.protocol, request.oldest_protocol)
        reply = pb.HandshakeReply(protocol=protocol, server=wire.address_message(own))
        now = time.monotonic()
        if not request.proof:
            reply.server_nonce = self._sessions.begin(request.nonce, now, host)
            return reply
        caller = wire.address_of(request.caller)
        self._check_certificate(caller, context)
        session, proof = self._sessions.finish(
            caller, request.nonce, request.server_nonce, request.proof, now, protocol
        )
        if differs := difference(own.node_id, self._settings, caller.node_id, request.settings):
            self._sessions.drop(caller)
            self.unlike.add(caller.node_id, differs, now)
            raise OtherSettings(differs)
        self.limits.proven(context.peer())
        session.has_tls = request.has_tls
        reply.server_nonce = request.server_nonce
        reply.proof = proof
        reply.session = bytes.fromhex(session.token)
        reply.read_token = session.read_token
        reply.read_sealed = self._read_sealed
        reply.owes = self._removals.must_tell(caller)
        return reply

    def _check_certificate(self, caller: NodeAddress, context: Any) -> None:
        """With TLS: AuthError unless the certificate fits the caller's node id and host."""
        shown = context.auth_context()
        if b"ssl" not in shown.get("transport_security_type", ()):
            return
        names = (name.decode() for name in shown.get("x509_subject_alternative_name", ()))
        wrong = misfit(names, caller.node_id, caller.name or caller.host)
        if wrong:
            self.misfits += 1
            raise AuthError(
                f"{caller.node_id} at {caller.endpoint}: {wrong}: give each node a certificate "
                "of its own"
            )

    async def Heartbeat(self, request: Any, context: Any) -> Any:
        caller = self._session(context).caller
        beat = member_wire.heartbeat_of(request)
        _must_be(caller, beat.sender.node_id, beat.sender.address.incarnation)
        if not caller.same_process(beat.sender.address):
            raise ValueError(f"{caller.node_id} beats with another key than its own")
        if len(request.epochs) > EPOCHS_PER_MESSAGE_MAX:
            raise ValueError(
                f"a heartbeat with {len(request.epochs)} namespace epochs; "
                f"{EPOCHS_PER_MESSAGE_MAX} are the limit"
            )
        epochs = [(e.namespace_id, e.epoch) for e in request.epochs]
        answer, known = self._node.heartbeat(beat, epochs)
        return member_wire.answer_message(answer, known)

    async def Probe(self, request: Any, context: Any) -> Any:
        self._session(context)
        target = wire.address_of(request.target)
        return pb.ProbeReply(alive=await self._node.probe(target))

    async def ConnectChannel(self, request: Any, context: Any) -> Any:
        caller = self._session(context).caller
        end, closed = channel_ends.offer_of(request)
        answer = await self._node.accepts.accept(caller, end, closed)
        return channel_ends.answer_message(answer)

    async def Remove(self, request: Any, context: Any) -> Any:
        caller = self._session(context).caller
        self._removals.check_member(caller)
        return await self._removals.answer(caller, request)

    async def EndRemovals(self, request: Any, context: Any) -> Any:
        caller = self._session(context).caller
        self._removals.check_member(caller)
        self._removals.told_over(caller, request)
        await self._removals.kept()
        return pb.EndRemovalsReply()

    async def MissedRemovals(self, request: Any, context: Any) -> Any:
        caller = self._session(context).caller
        return await self._catch_up.answer(caller, request)

    async def ForgetNode(self, request: Any, context: Any) -> Any:
        self._removals.check_member(self._session(context).caller)
        self._removals.forget(request.node_id)
        await self._removals.kept()
        return pb.ForgetNodeReply()

    async def Promote(self, request: Any, context: Any) -> Any:
        self._session(context)
        rows = await self._node.promotes.serve(request.digests, request.timeout_ms, request.warm)
        return pb.PromoteReply(rows=rows)

    async def PinPages(self, request: Any, context: Any) -> Any:
        self._session(context)
        statuses, why_not = await self._node.pins.serve(
            request.digests, request.for_ms, request.timeout_ms
        )
        return pb.PinPagesReply(statuses=statuses, why_not=why_not)

    async def Adopt(self, request: Any, context: Any) -> Any:
        caller = self._session(context).caller
        check_packed(request.namespace_id, DIGEST_BYTES, "namespace id")
        check_packed(request.rows, ROW_BYTES, "records")
        return await self._node.adopts.adopt(caller, request)

    async def RaiseEpoch(self, request: Any, context: Any) -> Any:
        caller = self._session(context).caller
        wanted = request.epoch
        raised, view = await self._node.raise_epoch(caller, wanted.namespace_id, wanted.epoch)
        silent = self._removals.silent()
        return pb.RaiseEpochReply(epoch=raised, silent=silent, view_number=view)

    async def Epochs(self, request: Any, context: Any) -> Any:
        self._session(context)
        return pb.EpochsReply(epochs=wire.epoch_messages(self._node.epochs.all().items()))

    async def Operate(self, request: Any, context: Any) -> Any:
        caller = self._session(context).caller
        return await self._operate(caller, request)

    async def Summary(self, request: Any, context: Any) -> Any:
        self._session(context)
        return pb.SummaryReply(json=self._node.overview.summary_json())

    async def Overview(self, request: Any, context: Any) -> Any:
        self._session(context)
        return await self._node.overview.here()

    async def Ping(self, request: Any, context: Any) -> Any:
        self._session(context)
        return pb.PingReply(server=wire.address_message(self._node.address()))


def _must_be(caller: NodeAddress, node_id: str, incarnation: int) -> None:
    if (caller.node_id, caller.incarnation) != (node_id, incarnation):
        raise _Refused(
            grpc.StatusCode.PERMISSION_DENIED,
            f"{caller.node_id} (incarnation {caller.incarnation}) may not speak for "
            f"{node_id} (incarnation {incarnation})",
        )
