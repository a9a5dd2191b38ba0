"""Takes events off the engine's queue and hands each to its handler.

Publishes are handled at once: records and withdrawals must stay in order, and none of them blocks.
Events that wait for peers become tasks; the number of worker connections bounds them.
"""

from __future__ import annotations

import asyncio
import logging
import struct
import time
from collections.abc import Coroutine
from functools import partial
from typing import TYPE_CHECKING

from peercached.directory.layout import DIGEST_BYTES
from peercached.directory.placement import Placement
from peercached.directory.publisher import Publisher
from peercached.peer.channels.connects import Connects
from peercached.peer.directory.cluster_wide import ClusterWide, describe_unreached
from peercached.peer.directory.lookups import Lookups
from peercached.peer.directory.promotes import Promotes
from peercached.peer.directory.streams import Streams
from peercached.peer.removals.driver import RemovalDriver
from peercached.peer.rpc.failure_detector import FailureDetector
from peercached.peer.rpc.failures import ReadFailed, TokenUnknown
from peercached.peer.rpc.tasks import Tasks

if TYPE_CHECKING:
    from peercached._native import Engine

log = logging.getLogger(__name__)

# EventKind of native/engine/control.h.
PUBLISH, LOOKUP, REMOVE, CLEAR, PEER_TROUBLE, LOST_UPDATES, CONNECT_CHANNEL, PROMOTE = range(1, 9)
_TROUBLE = struct.Struct("<QH?5x")
_PROMOTE = struct.Struct("<H6x")
_CLEAR = struct.Struct("<I")
_REMOVE = struct.Struct("<16sQ")
_REMOVED = struct.Struct("<II")
_TAKE = 256


class Events:
    def __init__(
        self,
        engine: Engine,
        placement: Placement,
        publisher: Publisher,
        streams: Streams,
        lookups: Lookups,
        cluster_wide: ClusterWide,
        failures: FailureDetector,
        connects: Connects,
        promotes: Promotes,
        removals: RemovalDriver,
    ) -> None:
        self._engine = engine
        self._placement = placement
        self._publisher = publisher
        self._streams = streams
        self._lookups = lookups
        self._cluster_wide = cluster_wide
        self._failures = failures
        self._connects = connects
        self._promotes = promotes
        self._removals = removals
        self._tasks = Tasks()

    def start(self) -> None:
        asyncio.get_running_loop().add_reader(self._engine.event_fd, self.drain)

    def stop(self) -> None:
        asyncio.get_running_loop().remove_reader(self._engine.event_fd)
        self._tasks.cancel()
        self._connects.stop()

    def drain(self) -> None:
        while True:
            events = self._engine.take_events(_TAKE)
            for kind, ticket, left_s, payload in events:
                try:
                    self._handle(kind, ticket, left_s, payload)
                except Exception:
                    log.exception("internal error while handling data plane event %d", kind)
                    if ticket:
                        self._engine.give_up(ticket)
            if len(events) < _TAKE:
                return

    def _handle(self, kind: int, ticket: int, left_s: float, payload: bytes) -> None:
        if kind == PUBLISH:
            now = time.monotonic()
            if ticket:
                done = partial(self._engine.answer, ticket, b"")
                self._publisher.publish(payload, now, left_s, done)
            else:
                self._publisher.forward(payload, now)
        elif kind == LOOKUP:
            self._answer_later(ticket, self._lookups.find(payload, left_s))
        elif kind == REMOVE:
            self._answer_later(ticket, self._remove(payload, left_s))
        elif kind == CLEAR:
            self._answer_later(ticket, self._clear(payload))
        elif kind == PEER_TROUBLE:
            incarnation, index, token_unknown = _TROUBLE.unpack_from(payload)
            node = self._placement.nodes.get(index)
            if node is not None and node.address.incarnation == incarnation:
                reason = payload[_TROUBLE.size :].decode(errors="replace")
                failure = TokenUnknown if token_unknown else ReadFailed
                self._failures.failed(node, failure(f"reading its pages failed: {reason}"))
        elif kind == PROMOTE:
            (index,) = _PROMOTE.unpack_from(payload)
            digests = payload[_PROMOTE.size :]
            if ticket:
                self._answer_later(ticket, self._promotes.ask(index, digests, left_s))
            else:
                self._promotes.warm(index, digests)
        elif kind == CONNECT_CHANNEL:
            self._connects.wish(payload)
        elif kind == LOST_UPDATES:
            log.warning(
                "the event queue overflowed and lost withdrawals: resyncing all record streams"
            )
            self._streams.resync_all()
        else:
            log.error("ignoring an event of unknown kind %d from the data plane", kind)

    async def _remove(self, question: bytes, left_s: float) -> bytes:
        """Returns a RemovalAnswer, followed by the held digests and a text."""
        epoch = _REMOVE.unpack_from(question)
        digests = question[_REMOVE.size :]
        status, held, text = await self._removals.remove(digests, left_s, epoch)
        return _REMOVED.pack(status, len(held) // DIGEST_BYTES) + held + text.encode()

    async def _clear(self, question: bytes) -> bytes:
        (user,) = _CLEAR.unpack_from(question)
        namespace = question[_CLEAR.size :].decode()
        try:
            unreached = await self._cluster_wide.clear(namespace, f"user {user}")
            return describe_unreached(unreached).encode()
        except ValueError as error:
            return str(error).encode()

    def _answer_later(self, ticket: int, work: Coroutine[None, None, bytes]) -> None:
        self._tasks.spawn(self._answer(ticket, work))

    async def _answer(self, ticket: int, work: Coroutine[None, None, bytes]) -> None:
        # On failure give up: an empty answer would mean "cleared everywhere" or "found nowhere".
        try:
            self._engine.answer(ticket, await work)
        except asyncio.CancelledError:
            self._engine.give_up(ticket)
            raise
        except Exception:
            log.exception("internal error while answering a data plane request")
            self._engine.give_up(ticket)
