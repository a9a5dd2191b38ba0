"""Asks members which object store they remember (cold/marker.py): all at the start, and later one
after the other. A member that has another store would read pages there which are removed here."""

from __future__ import annotations

import asyncio
import logging
import random

from peercached.cold.tier import ColdStore
from peercached.directory.placement import Change, Node, Placement
from peercached.peer.membership.goodbye import Goodbye
from peercached.peer.rpc.failure_detector import FailureDetector
from peercached.peer.rpc.failures import CallFailed
from peercached.peer.rpc.tasks import Tasks
from peercached.proto import peer_pb2 as pb

log = logging.getLogger(__name__)

ASKED_MAX = 8  # at a time
ASK_S = 10.0


class StoreMarkers:
    """On the event loop's thread. `timeout_s` bounds each call."""

    def __init__(
        self,
        placement: Placement,
        failures: FailureDetector,
        goodbye: Goodbye,
        store: ColdStore,
        timeout_s: float,
    ) -> None:
        self._placement = placement
        self._failures = failures
        self._goodbye = goodbye
        self._store = store
        self._timeout_s = timeout_s
        self._tasks = Tasks()
        self._task: asyncio.Task[None] | None = None
        self._due_at = float("-inf")
        self._turn = 0

    async def ask(self) -> None:
        """Asks some members. Alone, a node need not ask."""
        if not self._store.is_on:
            return
        others = self._placement.others
        if not others and not self._goodbye.why_outside:
            self._store.marker.members_know = True
        some = random.sample(others, min(ASKED_MAX, len(others)))
        await asyncio.gather(*(self._ask(node) for node in some))

    def tend(self, now: float) -> None:
        if not self._store.is_on or (self._task is not None and not self._task.done()):
            return
        if not self._store.marker.members_know:
            self._task = self._tasks.spawn(self.ask())
        elif now >= self._due_at and (others := self._placement.others):
            self._due_at = now + ASK_S
            self._turn += 1
            strangers = self._store.marker.strangers
            some = [node for node in others if node.address.node_id in strangers] or others
            self._task = self._tasks.spawn(self._ask(some[self._turn % len(some)]))

    def view_changed(self, change: Change) -> None:
        if self._store.is_on:
            self._store.marker.keep_only(member.node_id for member in change.view.members)

    async def stop(self) -> None:
        await self._tasks.stop()

    async def _ask(self, node: Node) -> None:
        try:
            reply = await self._failures.call(node, "Ping", pb.PingRequest(), self._timeout_s)
            self._store.marker.hear(node.address.node_id, reply.store_marker)
        except (CallFailed, ValueError) as error:
            log.debug("%s did not tell which object store it uses: %s", node.address.node_id, error)
