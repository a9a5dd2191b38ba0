"""Takes events off the engine's queue and hands each to its handler.

native/bindings/events_binding.cc gives the events their names and fields. A handler takes the
ticket (0: nobody waits), the seconds that the caller waits, and the fields.

Publishes are handled at once: records and withdrawals must stay in order, and none of them blocks.
Events that wait for peers become tasks; the number of worker connections bounds them.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING

from peercached.cold.tier import ColdTier
from peercached.directory.placement import Placement
from peercached.hints.executor import Hints
from peercached.peer.channels.connects import Connects
from peercached.peer.directory.own_records import OwnRecords
from peercached.peer.directory.promotes import Promotes
from peercached.peer.handover.parts import digests_in
from peercached.peer.pins.pins import Pins, Wish
from peercached.peer.removals.driver import RemovalDriver
from peercached.peer.rpc.failure_detector import FailureDetector
from peercached.peer.rpc.failures import ReadFailed, TokenUnknown
from peercached.peer.rpc.tasks import Tasks
from peercached.peer.server.cluster_wide import ClusterWide, describe_unreached

if TYPE_CHECKING:
    from peercached._native import Engine

log = logging.getLogger(__name__)

_TAKE = 256
# Share of a worker's time that its pin may take, so that the answer comes in time.
_SHARE = 0.9


@dataclass(eq=False)
class Events:
    _engine: Engine
    _placement: Placement
    _cluster_wide: ClusterWide
    _failures: FailureDetector
    _connects: Connects
    _own_records: OwnRecords
    _promotes: Promotes
    _removals: RemovalDriver
    _pins: Pins
    _hints: Hints
    _cold: ColdTier

    def __post_init__(self) -> None:
        self._tasks = Tasks()
        self.handlers: dict[str, Callable[..., None]] = {
            "remove": self._remove,
            "clear": self._clear,
            "peer_trouble": self._peer_trouble,
            "connect_channel": self._connect_channel,
            "promote": self._promote,
            "pin": self._pin,
            "hint": self._hint,
            "follower_moved": self._follower_moved,
            "fetch": self._fetch,
        }

    def start(self) -> None:
        asyncio.get_running_loop().add_reader(self._engine.event_fd, self.drain)

    def stop(self) -> None:
        asyncio.get_running_loop().remove_reader(self._engine.event_fd)
        self._tasks.cancel()
        self._connects.stop()

    def drain(self) -> None:
        while True:
            events = self._engine.take_events(_TAKE)
            for event in events:
                try:
                    self.handlers[event[0]](*event[1:])
                except Exception:
                    log.exception("internal error while handling data plane event %s", event[0])
                    if ticket := event[1]:
                        self._engine.give_up(ticket)
            if len(events) < _TAKE:
                return

    def _remove(
        self, ticket: int, left_s: float, namespace_id: bytes, epoch: int, digests: bytes
    ) -> None:
        async def remove() -> None:
            outcome = await self._removals.remove(digests, left_s, (namespace_id, epoch))
            self._engine.answer_removal(ticket, *outcome)

        self._tasks.spawn(self._or_give_up(ticket, remove()))

    def _clear(self, ticket: int, left_s: float, user: int, namespace: bytes) -> None:
        async def clear() -> bytes:
            try:
                unreached = await self._cluster_wide.clear(namespace.decode(), f"user {user}")
                return describe_unreached(unreached).encode()
            except ValueError as error:
                return str(error).encode()

        self._answer_later(ticket, clear())

    def _peer_trouble(
        self,
        ticket: int,
        left_s: float,
        holder: int,
        incarnation: int,
        token_unknown: bool,
        reason: bytes,
    ) -> None:
        node = self._placement.nodes.get(holder)
        if node is not None and node.address.incarnation == incarnation:
            failure = TokenUnknown if token_unknown else ReadFailed
            text = reason.decode(errors="replace")
            self._failures.failed(node, failure(f"reading its pages failed: {text}"))

    def _follower_moved(self, ticket: int, left_s: float) -> None:
        self._own_records.moved()

    def _fetch(self, ticket: int, left_s: float, digests: bytes) -> None:
        if ticket:
            self._answer_later(ticket, self._cold.fetch(digests, left_s))
        else:
            self._cold.warm(digests)

    def _connect_channel(
        self, ticket: int, left_s: float, holder: int, connect_id: int, end: bytes, closed: bytes
    ) -> None:
        self._connects.wish(holder, connect_id, end, closed)

    def _promote(self, ticket: int, left_s: float, holder: int, digests: bytes) -> None:
        if ticket:
            self._answer_later(ticket, self._promotes.ask(holder, digests, left_s))
        else:
            self._promotes.warm(holder, digests)

    def _pin(
        self,
        ticket: int,
        left_s: float,
        namespace_id: bytes,
        epoch: int,
        for_ms: int,
        prefix: bool,
        here: bool,
        digests: bytes,
    ) -> None:
        async def pin() -> bytes:
            wanted = list(digests_in(digests))
            wish = Wish(namespace_id, epoch, wanted, for_ms / 1000, prefix, here)
            pinned = await self._pins.pin(wish, left_s * _SHARE)
            return bytes(pinned.statuses[digest] for digest in wanted) + pinned.text.encode()

        self._answer_later(ticket, pin())

    def _hint(
        self, ticket: int, left_s: float, namespace: bytes, digests: bytes, envelope: bytes
    ) -> None:
        async def hint() -> bytes:
            own, about = namespace.decode(), list(digests_in(digests))
            try:
                found = await self._hints.take(envelope, wait=False, namespace=own, digests=about)
            except ValueError as error:
                return b"\1" + str(error).encode(errors="replace")
            outcomes = [outcome.document() for outcome in found]
            return b"\0" + json.dumps(outcomes).encode()

        self._answer_later(ticket, hint())

    def _answer_later(self, ticket: int, work: Coroutine[None, None, bytes]) -> None:
        async def answer() -> None:
            self._engine.answer(ticket, await work)

        self._tasks.spawn(self._or_give_up(ticket, answer()))

    async def _or_give_up(self, ticket: int, work: Coroutine[None, None, None]) -> None:
        # An empty answer would mean "cleared everywhere" or "found nowhere".
        try:
            await work
        except asyncio.CancelledError:
            self._engine.give_up(ticket)
            raise
        except Exception:
            log.exception("internal error while answering a data plane request")
            self._engine.give_up(ticket)
