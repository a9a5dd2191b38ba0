"""Tells each part of the node about a new view, a new session or a suspect."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING

from peercached.directory.placement import Node
from peercached.membership import View
from peercached.peer.rpc.auth import AuthError
from peercached.peer.rpc.client import PeerLink
from peercached.peer.rpc.failures import Unreachable
from peercached.peer.rpc.tasks import Tasks

if TYPE_CHECKING:
    from peercached.daemon import Daemon

log = logging.getLogger(__name__)

GREETINGS_AT_ONCE_MAX = 64


class ViewChanges:
    """Tells the parts in the order of their dependencies. On the event loop."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._tasks = Tasks()
        self._greeting = asyncio.Semaphore(GREETINGS_AT_ONCE_MAX)

    def stop(self) -> None:
        """Cancels handshakes and closings under way."""
        self._tasks.cancel()

    def apply(self, view: View) -> None:
        """Puts this view in force."""
        daemon = self._daemon
        settled = daemon.owner_side.final(daemon.placement.view.number)
        daemon.owner_side.view_changes()
        change = daemon.placement.apply(view, time.monotonic(), settled)
        for node in change.removed:
            daemon.failures.forget(node)
            daemon.connects.forget(node)
            daemon.accepts.forget(node)
            daemon.sessions.drop(node.address)
        for node in change.added:
            daemon.sessions.expel_impostors_of(node.address)
            daemon.peers.try_at_once(node.address.endpoint)
        number = daemon.placement.view.number
        answers = daemon.owner_side.set_view(number, daemon.placement.nodes)
        daemon.removals.set_view(daemon.placement.view)
        daemon.removal_driver.view_changed()
        daemon.streams.set_view(number, change.added, change.removed)
        daemon.node.send_late(answers)
        endpoints = {member.address.endpoint for member in view.members}
        for link in daemon.peers.keep_only(endpoints | daemon.cluster.endpoints()):
            self._tasks.spawn(link.close())
        for node in change.added:
            self._tasks.spawn(self._greet(node))
        names = ", ".join(member.node_id for member in view.members)
        log.info("new view %d with %d members: %s", view.counter, len(view.members), names)
        daemon.keeper.keep(view)

    def on_session(self, link: PeerLink) -> None:
        """A handshake has finished: its token opens the peer's data port."""
        daemon, who = self._daemon, link.identity
        node = daemon.placement.find_process(who) if who is not None else None
        if who is None or node is None or node is daemon.placement.own:
            return
        daemon.engine.connect_node(
            node.index,
            who.host,
            who.data_port,
            link.read_token,
            who.incarnation,
            who.rails,
            link.read_sealed,
        )
        node.data_sealed = link.read_sealed
        node.data_ready = True

    def on_suspect(self, node: Node) -> None:
        """Ends all waits for this node."""
        self._daemon.publisher.stop_waiting_for(node.index)
        self._daemon.lookups.stop_waiting_for(node)

    async def _greet(self, node: Node) -> None:
        """Does the handshake with a new member now, so that the first READ need not wait for it."""
        link = self._daemon.peers.link(node.address.endpoint)
        async with self._greeting:
            try:
                await link.ready(node.address)
            except (Unreachable, AuthError) as error:
                self._daemon.failures.failed(node, error)
                return
        if not node.data_ready:
            self.on_session(link)
