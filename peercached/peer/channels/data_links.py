"""Connects the data plane to the members' data ports. Handshakes bring the tokens of the ports."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from peercached.directory.placement import Change, Node, Placement
from peercached.peer.rpc.auth import AuthError
from peercached.peer.rpc.client import PeerLink, Peers
from peercached.peer.rpc.failure_detector import FailureDetector
from peercached.peer.rpc.failures import Unreachable
from peercached.peer.rpc.tasks import Tasks

if TYPE_CHECKING:
    from peercached._native import Engine

GREETINGS_AT_ONCE_MAX = 64


class DataLinks:
    """On the event loop's thread."""

    def __init__(
        self, engine: Engine, placement: Placement, peers: Peers, failures: FailureDetector
    ) -> None:
        self._engine = engine
        self._placement = placement
        self._peers = peers
        self._failures = failures
        self._tasks = Tasks()
        self._greeting = asyncio.Semaphore(GREETINGS_AT_ONCE_MAX)

    def stop(self) -> None:
        """Cancels handshakes under way."""
        self._tasks.cancel()

    def view_changed(self, change: Change) -> None:
        for node in change.added:
            self._tasks.spawn(self._greet(node))

    def open(self, link: PeerLink) -> None:
        """A handshake has finished: its token opens the peer's data port."""
        who = link.identity
        node = self._placement.find_process(who) if who is not None else None
        if who is None or node is None or node is self._placement.own:
            return
        self._engine.connect_node(
            node.index,
            who.host,
            who.data_port,
            link.read_token,
            who.incarnation,
            dict(who.transports),
            link.read_sealed,
        )
        node.data_sealed = link.read_sealed
        node.data_ready = True

    def close(self, link: PeerLink) -> None:
        """The session has ended for good: neither pages nor signs of life come from there."""
        node = self._placement.find_process(link.identity) if link.identity is not None else None
        if node is not None and node is not self._placement.own:
            self._engine.disconnect_node(node.index)
            node.data_ready = False

    async def _greet(self, node: Node) -> None:
        """Does the handshake with a new member now, so that the first READ need not wait for it."""
        link = self._peers.link(node.address.endpoint)
        async with self._greeting:
            try:
                await link.ready(node.address)
            except (Unreachable, AuthError) as error:
                self._failures.failed(node, error)
                return
        if not node.data_ready:
            self.open(link)
