"""Asks a host whether a process that vanished without a goodbye has ended.

It has ended if nothing listens at its address, or if another node does. A host that does not answer
proves nothing: the process may be frozen or cut off. If the same node has started again there, that
start must become a member first.
"""

from __future__ import annotations

import asyncio
import contextlib
import time

from peercached.membership.view import join_host_port
from peercached.peer.rpc.client import Peers
from peercached.peer.rpc.failures import CallFailed
from peercached.removals.lives import Life

# Removals that wait for the same process share one question for so many seconds.
ASK_AGAIN_S = 0.5
CONNECT_S = 1.0


class Ended:
    def __init__(self, peers: Peers, timeout_s: float) -> None:
        self._peers = peers
        self._timeout_s = min(timeout_s, CONNECT_S)
        self._asked: dict[tuple[str, int], tuple[float, asyncio.Task[bool]]] = {}

    async def has_ended(self, life: Life) -> bool:
        now = time.monotonic()
        asked = self._asked.get(life.name)
        if asked is None or (asked[1].done() and now - asked[0] > ASK_AGAIN_S):
            asked = (now, asyncio.ensure_future(self._ask(life)))
            self._asked[life.name] = asked
        ended = await asyncio.shield(asked[1])
        if ended:
            self._asked.pop(life.name, None)
        return ended

    async def _ask(self, life: Life) -> bool:
        try:
            _, writer = await asyncio.wait_for(
                asyncio.open_connection(life.host, life.peer_port), self._timeout_s
            )
        except ConnectionRefusedError:
            return True
        except (OSError, asyncio.TimeoutError):
            return False
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
        link = self._peers.link(join_host_port(life.host, life.peer_port))
        try:
            await asyncio.wait_for(link.ready(), self._timeout_s)
        except (CallFailed, asyncio.TimeoutError):
            return False
        who = link.identity
        return who is not None and who.node_id != life.node_id
