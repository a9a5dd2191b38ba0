"""Answers handshakes (peer/rpc/auth.py): checks the caller's certificate and settings, too."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import grpc

from peercached.config.shared import difference
from peercached.directory.placement import Placement
from peercached.membership import NodeAddress
from peercached.peer.rpc import wire
from peercached.peer.rpc.auth import AuthError, OtherProtocol, Sessions, agreed_protocol
from peercached.peer.rpc.certificates import misfit
from peercached.peer.rpc.connection_limits import ConnectionLimits, host_of
from peercached.peer.server.refusals import Refusals, Refused
from peercached.peer.server.unlike import OtherSettings, UnlikeSettings
from peercached.proto import peer_pb2 as pb
from peercached.removals.debts import Debts

log = logging.getLogger(__name__)


@dataclass(eq=False)
class Handshakes:
    """`read_sealed`: the data port speaks TLS too. `settings`: see config/shared.py."""

    _placement: Placement
    _sessions: Sessions
    _debts: Debts
    _limits: ConnectionLimits
    _refusals: Refusals
    _read_sealed: bool
    _settings: Sequence[str]
    unlike: UnlikeSettings = field(default_factory=UnlikeSettings, init=False)
    misfits: int = field(default=0, init=False)

    async def answer(self, request: Any, context: Any) -> Any:
        host = host_of(context.peer())
        try:
            return self._shake(request, host, context)
        except AuthError as error:
            log.warning("refused a handshake from %s: %s", host, error)
            refused = Refused(grpc.StatusCode.PERMISSION_DENIED, str(error))
            await self._refusals.refuse(context, refused)
        except (OtherProtocol, OtherSettings) as error:
            log.warning("refused a handshake from %s: %s", host, error)
            refused = Refused(
                grpc.StatusCode.FAILED_PRECONDITION,
                f"{self._placement.own.address.node_id} refuses this node: {error}",
            )
            await self._refusals.refuse(context, refused)
        except Exception as error:
            await self._refusals.refuse(context, error)

    def _shake(self, request: pb.HandshakeRequest, host: str, context: Any) -> pb.HandshakeReply:
        own = self._placement.own.address
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
        self._limits.proven(context.peer())
        session.has_tls = request.has_tls
        reply.server_nonce = request.server_nonce
        reply.proof = proof
        reply.session = bytes.fromhex(session.token)
        reply.read_token = session.read_token
        reply.read_sealed = self._read_sealed
        reply.owes = self._debts.must_tell(caller)
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
