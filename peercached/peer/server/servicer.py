"""The Peer service: checks the caller and the message, then calls the node.

Every call but Handshake needs a session. Packed bytes of a wrong length are refused with
INVALID_ARGUMENT and the value. An unknown session is refused with UNAUTHENTICATED; the caller then
repeats the handshake. A unary call that raises is refused by the interceptor (refusals.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import grpc

from peercached.directory.epochs import EPOCHS_PER_MESSAGE_MAX
from peercached.directory.layout import DIGEST_BYTES, ROW_BYTES, check_packed
from peercached.membership import NodeAddress
from peercached.peer.membership.embedded import wire as member_wire
from peercached.peer.removals.catch_up import RemovalCatchUp
from peercached.peer.removals.member import Removals
from peercached.peer.rpc import wire
from peercached.peer.rpc.auth import (
    OWES_KEY,
    SESSION_KEY,
    Session,
    Sessions,
)
from peercached.peer.rpc.connection_limits import ConnectionLimits
from peercached.peer.rpc.failure_detector import FailureDetector
from peercached.peer.server.auth_interceptor import AuthInterceptor
from peercached.peer.server.local_node import LocalNode
from peercached.peer.server.refusals import Refused
from peercached.peer.server.relay import Relay
from peercached.proto import peer_pb2 as pb
from peercached.proto import peer_pb2_grpc


@dataclass(eq=False)
class PeerServicer(peer_pb2_grpc.PeerServicer):
    _node: LocalNode
    _removals: Removals
    _catch_up: RemovalCatchUp
    _sessions: Sessions
    _failures: FailureDetector
    _relay: Relay
    _interceptor: AuthInterceptor
    _limits: ConnectionLimits

    def _session(self, context: Any) -> Session:
        metadata = dict(context.invocation_metadata() or ())
        session = self._sessions.find(metadata.get(SESSION_KEY, ""))
        if session is not None:
            self._limits.proven(context.peer())
            self._failures.called_by(session.caller)
            if OWES_KEY in metadata:
                self._catch_up.must_compare(session.caller)
            return session
        # The session ended after the interceptor checked it.
        self._interceptor.unauthenticated += 1
        raise Refused(grpc.StatusCode.UNAUTHENTICATED, "this session is not known here")

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
        answer = await self._node.accepts.accept(caller, request.end, request.closed)
        return pb.ConnectChannelReply(answer=answer)

    async def Remove(self, request: Any, context: Any) -> Any:
        caller = self._session(context).caller
        self._removals.check_member(caller)
        reply = await self._removals.answer(caller, request)
        reply.store_marker = self._node.cold.known
        reply.stored = request.stored and await self._node.cold.finds(request.digests)
        return reply

    async def EndRemovals(self, request: Any, context: Any) -> Any:
        caller = self._session(context).caller
        self._removals.check_member(caller)
        self._removals.told_over(caller, request)
        await self._removals.persisted()
        return pb.EndRemovalsReply()

    async def MissedRemovals(self, request: Any, context: Any) -> Any:
        caller = self._session(context).caller
        return await self._catch_up.answer(caller, request)

    async def ForgetNode(self, request: Any, context: Any) -> Any:
        self._removals.check_member(self._session(context).caller)
        self._removals.forget(request.node_id)
        await self._removals.persisted()
        return pb.ForgetNodeReply()

    async def Promote(self, request: Any, context: Any) -> Any:
        self._session(context)
        rows = await self._node.promotes.serve(request.digests, request.timeout_ms, request.warm)
        return pb.PromoteReply(rows=rows)

    async def PageNames(self, request: Any, context: Any) -> Any:
        self._removals.check_member(self._session(context).caller)
        return pb.PageNamesReply(names=await self._node.names.serve(request.digests))

    async def PinPages(self, request: Any, context: Any) -> Any:
        self._session(context)
        statuses, why_not = await self._node.pins.serve(
            request.digests, request.for_ms, request.timeout_ms
        )
        return pb.PinPagesReply(statuses=statuses, why_not=why_not)

    async def Hint(self, request: Any, context: Any) -> Any:
        caller = self._session(context).caller
        return await self._node.hints.serve(caller, request)

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
        return pb.RaiseEpochReply(
            epoch=raised, silent=silent, view_number=view, store_marker=self._node.cold.known
        )

    async def Epochs(self, request: Any, context: Any) -> Any:
        self._session(context)
        return pb.EpochsReply(epochs=wire.epoch_messages(self._node.epochs.all().items()))

    async def Operate(self, request: Any, context: Any) -> Any:
        caller = self._session(context).caller
        return await self._relay.answer(caller, request)

    async def Summary(self, request: Any, context: Any) -> Any:
        self._session(context)
        return pb.SummaryReply(json=self._node.overview.summary_json())

    async def Overview(self, request: Any, context: Any) -> Any:
        self._session(context)
        return await self._node.overview.here()

    async def Ping(self, request: Any, context: Any) -> Any:
        self._session(context)
        return pb.PingReply(
            server=wire.address_message(self._node.address()), store_marker=self._node.cold.known
        )


def _must_be(caller: NodeAddress, node_id: str, incarnation: int) -> None:
    if (caller.node_id, caller.incarnation) != (node_id, incarnation):
        raise Refused(
            grpc.StatusCode.PERMISSION_DENIED,
            f"{caller.node_id} (incarnation {caller.incarnation}) may not speak for "
            f"{node_id} (incarnation {incarnation})",
        )
