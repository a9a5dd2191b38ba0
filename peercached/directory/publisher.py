"""Sends batches of records to their owners, and answers once the owners have acknowledged."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Protocol

from peercached.directory.layout import ROW_BYTES, SELF, gone_from_pool
from peercached.directory.local import LocalShard

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


class FormerOwners(Protocol):
    """The owners by former views; placement.Placement implements it. `owned`: the records by
    present owner. Nodes that get all their records that way are left out."""

    def former_owners_of(
        self, rows: bytes, owned: Mapping[int, bytes], now: float
    ) -> list[tuple[int, bytes]]:
        """Former owners that still keep the records."""

    def former_owners_in_use(
        self, rows: bytes, owned: Mapping[int, bytes], now: float
    ) -> list[tuple[int, bytes]]:
        """Former owners that readers with a former view still ask."""


@dataclass(slots=True)
class _Pending:
    rows: bytes
    waiting: dict[int, bytes]  # owner -> its part
    accepted: list[bytes]  # parts that an owner has applied
    deadline: float
    fair: bool  # the owners get the whole timeout, so missing it counts against them
    done: Callable[[set[int]], None]
    failed: set[int]  # owners


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
        timeout_s: float,
        former_owners: FormerOwners,
    ) -> None:
        self._former_owners = former_owners
        self._engine = engine
        self._local = local
        self._streams = streams
        self._timeout_s = timeout_s
        self._tickets = count(1)
        self._pending: dict[int, _Pending] = {}
        self.batches = 0
        self.unreached = 0  # batches answered although no owner had applied any part
        self.timeouts = 0

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
        for owner, part in self._former_owners.former_owners_in_use(rows, parts, now):
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
        pending = _Pending(
            rows, waiting, accepted, deadline, left_s >= self._timeout_s, done, failed
        )
        if waiting:
            self._pending[ticket] = pending
        else:
            self._finish(pending)

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
            self._send(self._former_owners.former_owners_of(gone, owned, now))

    def _send(self, parts: Iterable[tuple[int, bytes]]) -> None:
        for owner, part in parts:
            if owner == SELF:
                self._local.apply(part)
            else:
                self._streams.offer(owner, part, 0)

    def acknowledged(self, owner: int, tickets: Iterable[int]) -> None:
        for ticket in tickets:
            pending = self._pending.get(ticket)
            if pending is None:
                continue
            part = pending.waiting.pop(owner, None)
            if part is not None:
                pending.accepted.append(part)
            if not pending.waiting:
                del self._pending[ticket]
                self._finish(pending)

    def lost(self, owner: int, tickets: Iterable[int]) -> None:
        """The owner's stream broke, or dropped these tickets."""
        for ticket in tickets:
            self._give_up(owner, ticket)

    def stop_waiting_for(self, owner: int) -> None:
        """The owner is suspect: pending batches stop waiting for it."""
        for ticket in [t for t, p in self._pending.items() if owner in p.waiting]:
            self._give_up(owner, ticket)

    def _give_up(self, owner: int, ticket: int) -> None:
        pending = self._pending.get(ticket)
        if pending is None or pending.waiting.pop(owner, None) is None:
            return
        pending.failed.add(owner)
        if not pending.waiting:
            del self._pending[ticket]
            self._finish(pending)

    def expire(self, now: float) -> set[int]:
        """Answers overdue batches. Returns the owners that let the whole timeout pass: the next
        batch should not wait for them."""
        silent: set[int] = set()
        for ticket in [t for t, p in self._pending.items() if now >= p.deadline]:
            pending = self._pending.pop(ticket)
            self.timeouts += 1
            if pending.fair:
                silent |= pending.waiting.keys()
            pending.failed |= pending.waiting.keys()
            self._finish(pending)
        return silent

    def _finish(self, pending: _Pending) -> None:
        # If an owner failed, only the parts that another owner applied are visible to readers. So
        # mark only those as published.
        if not pending.failed:
            self._engine.mark_published(pending.rows)
        else:
            for part in pending.accepted:
                self._engine.mark_published(part)
            self.unreached += bool(pending.rows) and not pending.accepted
        pending.done(pending.failed)

    @property
    def idle(self) -> bool:
        return not self._pending
