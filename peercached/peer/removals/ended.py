"""Asks a host whether a process that vanished without a goodbye has ended.

It has ended if nothing listens at its address, or if another member does. A host that does not
answer proves nothing: the process may be frozen or cut off. A node that has started there must
become a member first: until then it may serve pages that only it has.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import time

from peercached.directory.placement import Placement
from peercached.membership.view import join_host_port
from peercached.peer.rpc.client import Peers
from peercached.peer.rpc.failures import CallFailed
from peercached.removals.lives import Life

# Removals that wait for the same process share one question for so many seconds.
ASK_AGAIN_S = 0.5
CONNECT_S = 1.0


class Found(enum.Enum):
    """What is at the address of a process that vanished."""

    ENDED = "ended"  # nothing listens there, or another member does
    LISTENING = "listening"  # something takes connections: the process may run, or be frozen
    NO_ANSWER = "no answer"  # of the host


class Ended:
    def __init__(self, peers: Peers, placement: Placement, timeout_s: float) -> None:
        self._peers = peers
        self._placement = placement
        self._timeout_s = min(timeout_s, CONNECT_S)
        self._asked: dict[tuple[str, int], tuple[float, asyncio.Task[Found]]] = {}

    async def has_ended(self, life: Life) -> bool:
        return await self.find(life) is Found.ENDED

    async def find(self, life: Life) -> Found:
        now = time.monotonic()
        asked = self._asked.get(life.name)
        if asked is None or (asked[1].done() and now - asked[0] > ASK_AGAIN_S):
            asked = (now, asyncio.ensure_future(self._ask(life)))
            self._asked[life.name] = asked
        found = await asyncio.shield(asked[1])
        if found is Found.ENDED:
            self._asked.pop(life.name, None)
        return found

    async def _ask(self, life: Life) -> Found:
        try:
            _, writer = await asyncio.wait_for(
                asyncio.open_connection(life.host, life.peer_port), self._timeout_s
            )
        except ConnectionRefusedError:
            return Found.ENDED
        except (OSError, asyncio.TimeoutError):
            return Found.NO_ANSWER
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
        link = self._peers.link(join_host_port(life.host, life.peer_port))
        try:
            await asyncio.wait_for(link.ready(), self._timeout_s)
        except (CallFailed, asyncio.TimeoutError):
            return Found.LISTENING
        who = link.identity
        if who is None or who.node_id == life.node_id:
            return Found.LISTENING
        is_member = self._placement.find_process(who) is not None
        return Found.ENDED if is_member else Found.LISTENING
