"""Suspects a peer after a failed call, until the way of that call is proved again.

Pages take another way than calls: another port, with large frames. A ping proves nothing of it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from peercached.component import Component, Stats
from peercached.directory.placement import Change, Node, Placement
from peercached.health import Say, kinds, lasting
from peercached.membership import NodeAddress
from peercached.membership.view import join_host_port
from peercached.news import Event, News
from peercached.peer.rpc.auth import AuthError
from peercached.peer.rpc.client import Peers
from peercached.peer.rpc.failures import (
    CallFailed,
    ReadFailed,
    TimedOut,
    TokenUnknown,
    Unreachable,
)
from peercached.peer.rpc.suspects import Suspects
from peercached.peer.rpc.tasks import Tasks
from peercached.proto import peer_pb2 as pb

if TYPE_CHECKING:
    from peercached._native import Engine

log = logging.getLogger(__name__)

# A worker may leave a call little time. A timeout shorter than this, and than our own timeout for
# calls, proves nothing about the peer.
FAIR_S = 0.05
PING_TIMEOUT_S = 1.0


@dataclass(frozen=True)
class Suspected(Event):
    """A member has become suspect."""

    node: Node


class FailureDetector(Component):
    def __init__(
        self, engine: Engine, placement: Placement, peers: Peers, news: News, timeout_s: float
    ) -> None:
        self._fair_s = min(FAIR_S, timeout_s)
        self._engine = engine
        self._placement = placement
        self._peers = peers
        self.suspects = Suspects()
        self._news = news
        self._unproved: list[Node] = []
        self._proving = False
        self._tasks = Tasks()
        self._timer: asyncio.TimerHandle | None = None

    def failed(self, node: Node, failure: Unreachable | AuthError) -> None:
        """A call to `node` failed: suspects it, unless the timeout was too short to tell."""
        if isinstance(failure, TimedOut) and failure.budget_s < self._fair_s:
            return
        if self._placement.nodes.get(node.index) is not node or node is self._placement.own:
            return
        # A peer that refuses our token lives, and the ping's handshake gets a new token.
        answers = isinstance(failure, TokenUnknown)
        of_pages = isinstance(failure, ReadFailed) and not answers
        if not self.suspects.suspect(node, str(failure), time.monotonic(), answers, of_pages):
            return
        self._engine.suspect_node(node.index, True)
        log.warning("%s is suspect: %s", node.address.node_id, failure)
        self._news.post(Suspected(node))
        self._schedule()

    async def call(
        self,
        node: Node,
        method: str,
        request: Any,
        timeout_s: float | None = None,
        may_be_slow: bool = False,
    ) -> Any:
        """Calls a member, and suspects it if it is unreachable. `may_be_slow`: a timeout is no
        reason to suspect it. See PeerLink.call() for the rest. Raises CallFailed."""
        link = self._peers.link(node.address.endpoint)
        try:
            return await link.call(method, request, timeout_s, expect=node.address)
        except Unreachable as error:
            if not (may_be_slow and isinstance(error, TimedOut)):
                self.failed(node, error)
            raise

    def called_by(self, caller: NodeAddress) -> None:
        """A peer calls us: if it is suspect, pings it sooner."""
        node = self._placement.find_process(caller)
        if node is not None and node.suspect and self.suspects.calls(node):
            self._peers.try_at_once(node.address.endpoint)
            self._schedule()

    def ask(self, endpoints: Collection[str]) -> None:
        """Pings these peers once. A peer that does not answer becomes suspect, even if nobody else
        calls it."""
        for node in self._placement.nodes.values():
            if node is not self._placement.own and node.address.endpoint in endpoints:
                self._tasks.spawn(self._ask(node))

    async def _ask(self, node: Node) -> None:
        link = self._peers.link(node.address.endpoint)
        try:
            await link.call_within("Ping", pb.PingRequest(), PING_TIMEOUT_S, expect=node.address)
        except (Unreachable, AuthError) as error:
            self.failed(node, error)
        except CallFailed as error:
            log.info("%s refuses a ping: %s", node.address.node_id, error)

    def view_changed(self, change: Change) -> None:
        for node in change.removed:
            self.suspects.forget(node)

    def say(self, say: Say, stats: Stats) -> None:
        del stats
        now = time.monotonic()
        for node, reason, since, lives in self.suspects.reasons():
            peer = node.address
            state = f"is suspect{lasting(now - since)}: {reason}. Its pages are misses meanwhile."
            remedy = "If it stays: look at that daemon and at the network in between (both ports)."
            if lives:
                data = join_host_port(peer.host, peer.data_port)
                state = f"answers, but its data_port at {data} gives no pages. It {state}"
                remedy = (
                    f"Let TCP to port {peer.data_port} of {peer.host} pass, in firewalls on both "
                    f"hosts and in between. If small packets pass and pages do not, compare the "
                    f"MTU of all network interfaces on the way."
                )
            say(
                kinds.PEER_SUSPECT,
                f"{peer.node_id} at {peer.endpoint} {state}",
                remedy,
                about=peer.node_id,
            )

    def _schedule(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        at = self.suspects.next_at()
        if at != float("inf"):
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(max(at - time.monotonic(), 0.0), self._ping_due)

    def _ping_due(self) -> None:
        self._timer = None
        for node in self.suspects.due(time.monotonic()):
            self._tasks.spawn(self._ping(node))
        self._schedule()

    async def _ping(self, node: Node) -> None:
        link = self._peers.link(node.address.endpoint)
        try:
            await link.call_within("Ping", pb.PingRequest(), PING_TIMEOUT_S, expect=node.address)
        except CallFailed:
            self.suspects.silent(node, time.monotonic())
        else:
            self._answered(node)
            if self.suspects.wants_proof(node):
                self._unproved.append(node)
                if not self._proving:
                    self._proving = True
                    self._tasks.spawn(self._prove())
        self._schedule()

    async def _prove(self) -> None:
        """All at once, because a proof takes a thread for a while."""
        try:
            while nodes := self._unproved:
                self._unproved = []
                proved = await self._proofs([node.index for node in nodes])
                for node, proves in zip(nodes, proved, strict=True):
                    if proves:
                        self._answered(node, True)
                    else:
                        self.suspects.silent(node, time.monotonic(), lives=True)
                self._schedule()
        finally:
            self._proving = False

    async def _proofs(self, indices: list[int]) -> list[bool]:
        try:
            return await asyncio.get_running_loop().run_in_executor(
                None, self._engine.prove_paths, indices, PING_TIMEOUT_S
            )
        except Exception:  # without an answer these nodes would never be pinged again
            log.exception("cannot prove that pages come from suspects")
            return [False for _ in indices]

    def _answered(self, node: Node, pages_can_come: bool = False) -> None:
        if self.suspects.answered(node, time.monotonic(), pages_can_come):
            self._engine.suspect_node(node.index, False)
            log.info("%s answers again", node.address.node_id)

    async def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        await self._tasks.stop()
