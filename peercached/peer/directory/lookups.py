"""Drives Lookups: asks owners in parallel, turns to the next owner at once, keeps the deadline.

A call to an owner always has the whole `rpc_timeout_ms`, even if the worker's deadline is earlier.
It may outlive its lookup, because its end tells whether the owner is slow or suspect. While it is
overdue, other lookups prefer other owners.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from peercached.directory.layout import DIGEST_BYTES
from peercached.directory.lookup import Ask, Lookup, LookupCounters
from peercached.directory.native import Native
from peercached.directory.owner import OwnerSide
from peercached.directory.placement import Node, Placement
from peercached.observe.latency import LatencyCounts
from peercached.peer.rpc.client import Peers
from peercached.peer.rpc.failure_detector import FailureDetector
from peercached.peer.rpc.failures import CallFailed, TimedOut, Unreachable
from peercached.proto import peer_pb2 as pb
from peercached.within import within

if TYPE_CHECKING:
    from peercached._native import Engine

log = logging.getLogger(__name__)

# Seconds kept back for the answer's way to the worker.
MARGIN_S = 0.002


@dataclass(slots=True)
class Asked:
    """One question to an owner, in a lookup that is traced. Times are time.monotonic()."""

    node: Node
    began: float
    ended: float = 0.0  # 0: not yet
    outcome: str = ""


@dataclass(slots=True, eq=False)
class _Call:
    ask: Ask
    node: Node
    task: asyncio.Task[Any]
    due: float  # overdue from then on (time.monotonic())
    overdue: bool = False


class Lookups:
    def __init__(
        self,
        engine: Engine,
        native: Native,
        placement: Placement,
        owner_side: OwnerSide,
        peers: Peers,
        failures: FailureDetector,
        timeout_s: float,
    ) -> None:
        self._engine = engine
        self._native = native
        self._placement = placement
        self._owner_side = owner_side
        self._peers = peers
        self._failures = failures
        self._timeout_s = timeout_s
        self._calls: dict[Node, set[asyncio.Task[Any]]] = {}
        # For `peercachectl trace`: the packed digests of a lookup -> the owners that it asked.
        self.watched: dict[bytes, list[Asked]] = {}
        self.counters = LookupCounters()
        self.latency = LatencyCounts("lookup_rpc")  # only calls that were answered
        failures.on_suspect(self.stop_waiting_for)

    async def find(self, digests: bytes, left_s: float) -> bytes:
        """Looks up packed digests, within `left_s`. Returns packed records with our holder indices:
        all, or those that were found in time."""
        now = time.monotonic()
        lookup = Lookup(
            self._engine,
            self._native,
            self._placement,
            self._owner_side,
            self.counters,
            digests,
            now,
        )
        running: dict[asyncio.Task[Any], _Call] = {}
        try:
            await self._run(lookup, running, now + left_s - MARGIN_S)
        finally:
            # The calls go on. Until they end, the next lookup must prefer other owners.
            for call in running.values():
                self._overdue(call)
        return lookup.rows()

    async def _run(
        self, lookup: Lookup, running: dict[asyncio.Task[Any], _Call], deadline: float
    ) -> None:
        asks = lookup.start()
        while True:
            for ask in asks:
                call = self._start(ask, deadline)
                if call is not None:
                    running[call.task] = call
                else:
                    asks += lookup.failed(ask)
            if lookup.settled:
                return
            now = time.monotonic()
            until = min([deadline, *(c.due for c in running.values() if not c.overdue)])
            if now >= deadline:
                return
            done, _ = await asyncio.wait(
                running, timeout=max(until - now, 0.0), return_when=asyncio.FIRST_COMPLETED
            )
            asks = []
            for task in done:
                asks += self._ended(lookup, running.pop(task))
            now = time.monotonic()
            for call in running.values():
                if now >= call.due and not call.overdue:
                    self._overdue(call)
                    asks += lookup.overdue(call.ask)

    def _start(self, ask: Ask, deadline: float) -> _Call | None:
        node = self._placement.nodes.get(ask.owner)
        if node is None or time.monotonic() >= deadline:
            return None
        count = len(ask.digests) // DIGEST_BYTES
        task = asyncio.ensure_future(self.ask_owner(node, ask.digests, self._timeout_s))
        calls = self._calls.setdefault(node, set())
        calls.add(task)

        def ended(_: object) -> None:
            calls.discard(task)
            if not calls:
                self._calls.pop(node, None)

        task.add_done_callback(ended)
        if self.watched and ask.digests in self.watched:
            self._watch(self.watched[ask.digests], node, task)
        return _Call(ask, node, task, time.monotonic() + node.patience.delay_s(count))

    def _watch(self, watched: list[Asked], node: Node, task: asyncio.Task[Any]) -> None:
        asked = Asked(node, time.monotonic())
        watched.append(asked)

        def ended(task: asyncio.Task[Any]) -> None:
            asked.ended = time.monotonic()
            if task.cancelled():
                asked.outcome = "given up"
            elif isinstance(reply := task.result(), str):
                asked.outcome = reply
            else:
                asked.outcome = "ok" if reply.rows else "absent"

        task.add_done_callback(ended)

    def _overdue(self, call: _Call) -> None:
        if call.overdue:
            return
        call.overdue = True
        node = call.node
        node.overdue += 1

        def ended(_: object) -> None:
            node.overdue -= 1

        call.task.add_done_callback(ended)

    def _ended(self, lookup: Lookup, call: _Call) -> list[Ask]:
        if call.task.cancelled() or isinstance(reply := call.task.result(), str):
            return lookup.failed(call.ask)
        holders = [(h.node_id, h.incarnation) for h in reply.holders]
        try:
            return lookup.answered(call.ask, reply.rows, holders, reply.final)
        except ValueError as error:
            name = call.node.address.node_id
            log.warning("malformed lookup answer from %s: %s (counted as failed)", name, error)
            return lookup.failed(call.ask)

    def stop_waiting_for(self, node: Node) -> None:
        """Cancels all calls to a node that has become suspect."""
        for task in list(self._calls.get(node, ())):
            task.cancel()

    async def stop(self) -> None:
        tasks = [task for calls in self._calls.values() for task in calls]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def ask_owner(self, node: Node, digests: bytes, left_s: float) -> Any:
        """Returns a LookupReply, or a text that says what went wrong. Reports an unreachable owner
        to the failure detector."""
        link = self._peers.link(node.address.endpoint)
        request = pb.LookupRequest(digests=digests, view_number=self._placement.view.number)
        began = time.monotonic()
        try:
            if not link.metadata:
                # The handshake has deadlines of its own, and does not count as latency.
                await within(left_s, link.ready(node.address))
                began = time.monotonic()
            reply = await link.call("Lookup", request, left_s, expect=node.address)
        except asyncio.TimeoutError:
            failure = TimedOut(link.endpoint, left_s, "shake hands")
            self._failures.failed(node, failure)
            return str(failure)
        except Unreachable as error:
            self._failures.failed(node, error)
            return str(error)
        except CallFailed as error:
            log.warning("lookup at %s failed: %s", node.address.node_id, error)
            return str(error)
        took_s = time.monotonic() - began
        self.latency.add(took_s)
        node.patience.answered(took_s, len(digests) // DIGEST_BYTES)
        return reply
