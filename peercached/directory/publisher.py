"""Sends batches of records to their owners, and answers once the owners have acknowledged."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import count
from typing import TYPE_CHECKING, Protocol

from peercached.directory.layout import ROW_BYTES, SELF, gone_from_pool
from peercached.directory.local import LocalShard
from peercached.directory.pending import PendingBatch, PendingBatches
from peercached.directory.placement import Placement

if TYPE_CHECKING:
    from peercached._native import Engine


class Streams(Protocol):
    """The open streams, by owner."""

    def offer(self, owner: int, rows: bytes, ticket: int) -> bool:
        """Queues the records; True if the ticket will come back (acknowledged or lost). Without
        records the ticket comes back when everything queued before is acknowledged."""

    def under_way(self) -> Iterable[int]:
        """Reachable owners with unacknowledged records."""

    def doubtful(self) -> Iterable[int]:
        """Owners that may have stale records of ours, where no acknowledgement could prove
        otherwise."""


class Publisher:
    """Sans-I/O; not thread safe; `now` is monotonic seconds.

    `done` is called once per batch: when all reachable owners have the records, at the timeout, or
    at once if no owner is reachable. In the last two cases this node still serves the page, and the
    record waits on the streams. Caching must not stop because the network did.
    """

    def __init__(
        self,
        engine: Engine,
        local: LocalShard,
        streams: Streams,
        pending: PendingBatches,
        timeout_s: float,
        placement: Placement,
    ) -> None:
        self._placement = placement
        self._engine = engine
        self._local = local
        self._streams = streams
        self._timeout_s = timeout_s
        self._tickets = count(1)
        self._pending = pending
        self.batches = 0

    def wait_at_most(self, timeout_ms: float) -> None:
        """Sets the timeout, from the next batch on."""
        self._timeout_s = timeout_ms / 1000

    def publish(self, rows: bytes, now: float, left_s: float, done: Callable[[], None]) -> None:
        self.batches += 1
        parts = self._parts(rows, now)
        self._begin(rows, parts, set(), now, left_s, lambda failed: done())

    def take_back(
        self, rows: bytes, now: float, left_s: float, done: Callable[[set[int]], None]
    ) -> None:
        """Sends withdrawals; waits for these and for all earlier offers. `done` gets the owners
        that may still list us as holder of a page withdrawn now or before."""
        parts = self._parts(rows, now)
        # Ask this after _parts(): its offers to former owners may overflow a queue.
        failed = set(self._streams.doubtful())
        if not self._local.exact:
            failed.add(SELF)
        parts = dict.fromkeys(self._streams.under_way(), b"") | parts
        self._begin(b"", parts, failed, now, left_s, done)

    def _parts(self, rows: bytes, now: float) -> dict[int, bytes]:
        parts = dict(self._engine.split(rows, ROW_BYTES))
        # A reader with a former view asks the owners by that view, and takes their misses as final.
        for owner, part in self._placement.former_owners_in_use(rows, parts, now):
            parts[owner] = parts.get(owner, b"") + part
        self._take_back(rows, parts, now)
        return parts

    def _begin(
        self,
        rows: bytes,
        parts: Mapping[int, bytes],
        failed: set[int],
        now: float,
        left_s: float,
        done: Callable[[set[int]], None],
    ) -> None:
        ticket = next(self._tickets)
        waiting: dict[int, bytes] = {}
        accepted: list[bytes] = []
        for owner, part in parts.items():
            if owner == SELF:
                self._local.apply(part)
                accepted.append(part)
            elif self._streams.offer(owner, part, ticket):
                waiting[owner] = part
            else:
                failed.add(owner)
        deadline = now + min(left_s, self._timeout_s)
        fair = left_s >= self._timeout_s
        batch = PendingBatch(rows, waiting, accepted, deadline, fair, done, failed)
        self._pending.add(ticket, batch)

    def forward(self, rows: bytes, now: float) -> None:
        """Sends records without waiting for them: withdrawals after eviction."""
        parts = dict(self._engine.split(rows, ROW_BYTES))
        self._take_back(rows, parts, now)
        self._send(parts.items())

    def _take_back(self, rows: bytes, owned: Mapping[int, bytes], now: float) -> None:
        """Tells former owners, too, which pages have left our pool. Readers still ask them, and
        they may be owners again. A reader with a stale record searches no further. Nor does it know
        that a page on disk needs a call to its holder before the READ."""
        if gone := gone_from_pool(rows):
            self._send(self._placement.former_owners_of(gone, owned, now))

    def _send(self, parts: Iterable[tuple[int, bytes]]) -> None:
        for owner, part in parts:
            if owner == SELF:
                self._local.apply(part)
            else:
                self._streams.offer(owner, part, 0)
