"""Calls of operators and web readers to other members, over the peers' authenticated channel: both
ends.

Every member may read. Changes need authenticated members: otherwise anyone who reaches the meta
port could drain the node.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from typing import Any

import grpc
import grpc.aio

from peercached import __version__
from peercached.admin.calls import CALLS, Refusal, answer, steers
from peercached.directory.placement import Node, Placement
from peercached.membership import NodeAddress
from peercached.peer.rpc.auth import AuthError, Secret
from peercached.peer.rpc.client import Peers
from peercached.peer.rpc.failures import Malformed, Refused, Unreachable
from peercached.peer.rpc.tls import Tls
from peercached.peer.server.security import authenticates
from peercached.proto import peer_pb2 as pb

log = logging.getLogger(__name__)

# Concurrent answers to operators at peers, and as many to web readers there. Further calls are
# refused, to be retried.
ANSWERS_AT_ONCE_MAX = 8
# A member's answer to web readers is reused for this long.
WEB_FRESH_S = 1.0

_CODES = {code.value[0]: code for code in grpc.StatusCode}


class Relay:
    """On the event loop's thread."""

    def __init__(
        self,
        source: Any,
        placement: Placement,
        peers: Peers,
        secret: Secret,
        tls: Tls | None,
    ) -> None:
        self._source = source
        self._placement = placement
        self._peers = peers
        self._secret = secret
        self._tls = tls
        self._answering: Counter[bool] = Counter()  # by OperateRequest.web
        # The last call for web readers, and when it began, by node id and method.
        self._for_web: dict[tuple[str, str], tuple[float, asyncio.Task[bytes]]] = {}

    async def ask(self, node_id: str, method: str, packed: bytes, left_s: float) -> bytes:
        """Returns that member's packed reply within `left_s` seconds. Refusal if the member refuses
        or cannot be reached."""
        return await self._ask(self._member(node_id), method, packed, left_s, web=False)

    async def ask_for_web(self, node_id: str, method: str, left_s: float) -> bytes:
        """Like ask(), for strangers. They share the calls that are under way, and answers that are
        not older than WEB_FRESH_S. So a flood of them costs each member one call a second for each
        method."""
        node = self._member(node_id)
        now = time.monotonic()
        begun_at, call = self._for_web.get((node_id, method), (0.0, None))
        if call is None or (call.done() and now - begun_at > WEB_FRESH_S):
            call = asyncio.ensure_future(self._ask(node, method, b"", left_s, web=True))
            # Retrieve the error: asyncio complains if all who waited for it are gone.
            call.add_done_callback(lambda done: done.cancelled() or done.exception())
            there = {other.address.node_id for other in self._placement.nodes.values()}
            self._for_web = {key: one for key, one in self._for_web.items() if key[0] in there}
            self._for_web[(node_id, method)] = now, call
        return await asyncio.shield(call)

    def _member(self, node_id: str) -> Node:
        nodes = {node.address.node_id: node for node in self._placement.nodes.values()}
        node = nodes.get(node_id)
        if node is None:
            raise Refusal(
                grpc.StatusCode.NOT_FOUND,
                f"there is no member {node_id!r}: there are {', '.join(sorted(nodes))}",
            )
        return node

    async def _ask(
        self, node: Node, method: str, packed: bytes, left_s: float, *, web: bool
    ) -> bytes:
        node_id = node.address.node_id
        if node is self._placement.own:
            return await answer(self._source, method, packed, "an operator of this host")
        link = self._peers.link(node.address.endpoint)
        try:
            reply = await link.call(
                "Operate",
                pb.OperateRequest(method=method, request=packed, web=web),
                expect=node.address,
                patience_s=left_s,
            )
        except (Unreachable, Malformed, AuthError) as error:
            raise Refusal(
                grpc.StatusCode.FAILED_PRECONDITION, f"{node_id} cannot be asked: {error}"
            ) from error
        except Refused as error:
            if error.code is grpc.StatusCode.UNIMPLEMENTED:
                details = f"{node_id} runs an older version, which takes no operators' calls"
            else:
                details = f"{node_id}: {error.details}"
            raise Refusal(grpc.StatusCode.FAILED_PRECONDITION, details) from error
        if reply.code:
            where = f"{node_id} (peercached {reply.version})"
            code = _CODES.get(reply.code, grpc.StatusCode.UNKNOWN)
            raise Refusal(code, f"{where}: {reply.details}")
        return bytes(reply.reply)

    async def answer(self, caller: NodeAddress, request: pb.OperateRequest) -> pb.OperateReply:
        """Answers an operator's call that another member relays."""
        try:
            reply = await self._answer(caller, request)
        except Refusal as refusal:
            return pb.OperateReply(
                code=refusal.code.value[0], details=refusal.details, version=__version__
            )
        return pb.OperateReply(reply=reply, version=__version__)

    async def _answer(self, caller: NodeAddress, request: pb.OperateRequest) -> bytes:
        method = request.method
        if method in CALLS and steers(method) and not authenticates(self._secret, self._tls):
            log.warning(
                "refused admin command %s relayed by %s: peers are not authenticated (neither "
                "cluster_secret_file nor TLS)",
                request.method,
                caller.node_id,
            )
            raise Refusal(
                grpc.StatusCode.PERMISSION_DENIED,
                "it is not steered by peers that are not authenticated: give all nodes the same "
                "cluster_secret_file, or run this on that host",
            )
        if self._answering[request.web] >= ANSWERS_AT_ONCE_MAX:
            raise Refusal(grpc.StatusCode.RESOURCE_EXHAUSTED, "it is busy: ask again")
        self._answering[request.web] += 1
        try:
            who = f"an operator at {caller.node_id}"
            return await answer(self._source, request.method, request.request, who)
        finally:
            self._answering[request.web] -= 1
