"""Asks a host whether a process that vanished without a goodbye has ended.

It has ended if nothing listens at its address, or if something else does: another member, a daemon
of another cluster, or a program that is no daemon. A host that does not answer proves nothing: the
process may be frozen or cut off. Another node of this cluster that has started there must become a
member first: until then it may serve pages that only it has.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import time

from peercached.directory.placement import Placement
from peercached.membership.view import join_host_port
from peercached.peer.rpc.auth import AuthError
from peercached.peer.rpc.client import Peers
from peercached.peer.rpc.failures import CallFailed
from peercached.removals.processes import Process
from peercached.timeout import within

# Removals that wait for the same process share one question for so many seconds.
ASK_AGAIN_S = 0.5
CONNECT_S = 1.0

FRAME_HEAD = 9  # bytes: length (3), type (1), flags (1), stream (4). RFC 9113, 4.1
SETTINGS = 4
HTTP2_HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, SETTINGS, 0, 0, 0, 0, 0])
TLS_ALERT = b"\x15"


class Found(enum.Enum):
    """The result of a look at the address of a process that vanished."""

    ENDED = "ended"  # nothing listens there, or something else does
    LISTENING = "listening"  # something takes connections: the process may run, or be frozen
    NO_ANSWER = "no answer"  # of the host


class Ended:
    def __init__(self, peers: Peers, placement: Placement, timeout_s: float) -> None:
        self._peers = peers
        self._placement = placement
        self._timeout_s = min(timeout_s, CONNECT_S)
        self._asked: dict[tuple[str, int], tuple[float, asyncio.Task[Found]]] = {}

    async def has_ended(self, process: Process) -> bool:
        return await self.find(process) is Found.ENDED

    async def find(self, process: Process) -> Found:
        now = time.monotonic()
        asked = self._asked.get(process.name)
        if asked is None or (asked[1].done() and now - asked[0] > ASK_AGAIN_S):
            asked = (now, asyncio.ensure_future(self._ask(process)))
            self._asked[process.name] = asked
        found = await asyncio.shield(asked[1])
        if found is Found.ENDED:
            self._asked.pop(process.name, None)
        return found

    async def _ask(self, process: Process) -> Found:
        try:
            reader, writer = await within(
                self._timeout_s, asyncio.open_connection(process.host, process.peer_port)
            )
        except ConnectionRefusedError:
            return Found.ENDED
        except (OSError, asyncio.TimeoutError):
            return Found.NO_ANSWER
        try:
            if await self._is_no_daemon(reader, writer):
                return Found.ENDED
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
        link = self._peers.link(join_host_port(process.host, process.peer_port))
        link.forget_session()  # it may be of the process that we ask for
        try:
            await within(self._timeout_s, link.ready())
        except AuthError:
            is_another = link.claimed is not None and link.claimed.node_id != process.node_id
            return Found.ENDED if is_another else Found.LISTENING
        except (CallFailed, asyncio.TimeoutError):
            return Found.LISTENING
        who = link.identity
        if who is None or who.node_id == process.node_id:
            return Found.LISTENING
        is_member = self._placement.find_process(who) is not None
        return Found.ENDED if is_member else Found.LISTENING

    async def _is_no_daemon(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        """Whether the answer is one that no daemon gives. The first frame of its HTTP/2 is
        SETTINGS. With TLS it answers with an alert, or closes the connection."""
        writer.write(HTTP2_HELLO)
        try:
            first = await within(self._timeout_s, reader.readexactly(FRAME_HEAD))
        except asyncio.IncompleteReadError as error:
            first = error.partial
        except (OSError, asyncio.TimeoutError):
            return False
        is_settings = len(first) == FRAME_HEAD and first[3] == SETTINGS and not any(first[5:])
        return bool(first) and not is_settings and first[:1] != TLS_ALERT
