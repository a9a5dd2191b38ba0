"""From a batch of records to the owners, and from their acknowledgements to the answer."""

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
        records it comes back when what is on its way has come."""

    def under_way(self) -> Iterable[int]:
        """Owners that can be reached and have not acknowledged all that they were offered."""

    def doubtful(self) -> Iterable[int]:
        """Owners that may have records of ours that we have not, and get no ticket, or none that
        would prove anything."""


class FormerOwners(Protocol):
    """Who owned records in the views before; placement.Placement is one. `owned`: the records by
    their owners of today, of whom only those are named that have not got them all."""

    def former_owners_of(
        self, rows: bytes, owned: Mapping[int, bytes], now: float
    ) -> list[tuple[int, bytes]]:
        """Those that keep them still."""

    def former_owners_in_use(
        self, rows: bytes, owned: Mapping[int, bytes], now: float
    ) -> list[tuple[int, bytes]]:
        """Those whom readers ask that have not got the view yet."""


@dataclass(slots=True)
class _Pending:
    rows: bytes
    waiting: dict[int, bytes]  # owner -> its part
    accepted: list[bytes]  # parts that an owner has
    deadline: float
    fair: bool  # it has the whole time-out
    done: Callable[[set[int]], None]
    failed: set[int]  # owners


class Publisher:
    """Sans-I/O; not thread safe; `now` is monotonic seconds.

    `done` is called once per batch: when all owners that answer have the records, at the
    time-out, or when no owner can be reached at all. Then the page is still served from here
    and the record waits on the streams: caching must not stop because the network did.
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
        self.timeout_s = timeout_s
        self._tickets = count(1)
        self._pending: dict[int, _Pending] = {}
        self.batches = 0
        self.unreached = 0  # batches answered although no owner had all their records
        self.timeouts = 0

    def wait_at_most(self, timeout_ms: float) -> None:
        """From the next batch on."""
        self.timeout_s = timeout_ms / 1000

    def publish(self, rows: bytes, now: float, left_s: float, done: Callable[[], None]) -> None:
        self.batches += 1
        parts = self._parts(rows, now)
        self._begin(rows, parts, set(), now, left_s, lambda failed: done())

    def take_back(
        self, rows: bytes, now: float, left_s: float, done: Callable[[set[int]], None]
    ) -> None:
        """Withdrawals, and all that was offered to any owner before. `done` gets the owners that
        may still name us for what these take back, or for what was taken back before."""
        parts = self._parts(rows, now)
        # Behind that: former owners have been offered some of it.
        failed = set(self._streams.doubtful())
        if not self._local.exact:
            failed.add(SELF)
        parts = dict.fromkeys(self._streams.under_way(), b"") | parts
        self._begin(b"", parts, failed, now, left_s, done)

    def _parts(self, rows: bytes, now: float) -> dict[int, bytes]:
        parts = dict(self._engine.split(rows, ROW_BYTES))
        # A reader that goes by an earlier view asks its owners, who call what they lack nowhere.
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
        deadline = now + min(left_s, self.timeout_s)
        pending = _Pending(
            rows, waiting, accepted, deadline, left_s >= self.timeout_s, done, failed
        )
        if waiting:
            self._pending[ticket] = pending
        else:
            self._finish(pending)

    def forward(self, rows: bytes, now: float) -> None:
        """Records that nobody waits for: withdrawals by eviction."""
        parts = dict(self._engine.split(rows, ROW_BYTES))
        self._take_back(rows, parts, now)
        self._send(parts.items())

    def _take_back(self, rows: bytes, owned: Mapping[int, bytes], now: float) -> None:
        """Also from those who were owners before. They are asked still, and may be owners again in
        the next view: a reader that is told of a page that is gone looks no further for another; a
        page on disk can be READ only after its holder was asked for it."""
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
        """The owner's stream broke with these under way."""
        for ticket in tickets:
            self._give_up(owner, ticket)

    def stop_waiting_for(self, owner: int) -> None:
        """It is suspect: whoever waits for it need not."""
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
        """Answers what is overdue. Returns the owners that let the whole time-out pass: the
        next batch should not wait for them."""
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
        # Marked per part: when an owner failed, only the records another one took are
        # visible, and only those are "visible when told".
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
