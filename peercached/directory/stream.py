"""HolderStream: sends our records to one owner.

Records travel in numbered, acknowledged batches, a window of them at a time. When the owner may
have missed something (a new connection, a gap, a full queue, a new view), a *resync* compares and
repairs:

    fingerprint of our summary   ->   <- same: done
    summary of 256 buckets       ->   <- mask of the buckets that differ
    those buckets, whole         ->
    the changes meanwhile        ->      (the echo, see below)
    SyncDone                     ->   <- acknowledged: the owner has all records for this view

New records keep flowing during a resync; a publish never waits for it. Owners apply records
conditionally by generation, so an *addition* may arrive twice or late. A *withdrawal* may not:
owners keep no tombstones. Suppose a scan puts a page into a bucket, then the page is evicted, and
its withdrawal overtakes the bucket. The bucket would bring the record back for good. So all records
sent since the scan began are sent again after the buckets, in order: the *echo*.

A removal is answered as soon as the owner has applied the withdrawal. From then on no stale record
may arrive, not even for a moment. So buckets and echo omit all records withdrawn since the scan
began.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto

from peercached.directory.layout import (
    BUCKETS,
    ROW_BYTES,
    ZERO_SUMMARY,
    bucket_groups,
    fingerprint_of,
)
from peercached.directory.messages import Ack, Batch, Kind
from peercached.directory.native import Native
from peercached.directory.refusals import Refusals

BATCH_BYTES_MAX = ROW_BYTES * 8192
WINDOW_BATCHES = 32
WINDOW_BYTES = 4 << 20
QUEUE_BYTES_MAX = 4 << 20
ECHO_BYTES_MAX = 1 << 20
# Above this many unacknowledged bytes, `behind` is true: records of a `set` would queue for long.
BEHIND_BYTES = 256 << 10
# Rows asked of the pool at once during a resync: 12 MB.
GROUP_ROWS_MAX = 250_000
ACK_TIMEOUT_S = 5.0
# An owner answers a question only once it has our view; views spread within a heartbeat.
ANSWER_TIMEOUT_S = 10.0


class _Phase(Enum):
    SYNCED = auto()
    WANT_SUMMARY = auto()
    SCANNING = auto()  # the driver is scanning the pool
    AWAIT_ANSWER = auto()
    WANT_ROWS = auto()
    SENDING = auto()  # a group of buckets, then its echo
    FINISHING = auto()  # SyncDone is queued or in flight


@dataclass(frozen=True, slots=True)
class Want:
    """A request for a scan of the pool: a summary, or the rows of the buckets in `mask`. Answer
    with the same `attempt`; an outdated answer is dropped."""

    attempt: int
    mask: bytes = b""  # empty: a summary


class HolderStream:
    """Sans-I/O; not thread safe. Tickets are the publisher's. Ticket 0: nothing waits for it."""

    def __init__(
        self, native: Native, owner: int, view_number: int, fence: Callable[[], int] = lambda: 0
    ) -> None:
        """`fence` returns the present fence of our publish frames (native/engine/fences.h)."""
        self._native = native
        self.owner = owner
        self._fence = fence
        self.connected = False
        self.broken = ""  # why the driver must reconnect; "" while the connection is fine
        self.overdue = False  # `broken` because the owner is silent
        self.has_view = False  # the owner has our view or a later one: it compared by that
        # The owner has exactly our records, except for batches in flight. False before the first
        # comparison: the owner may have records from before this object existed.
        self.exact = False
        self.resyncs = 0
        self.overflows = 0
        self.refused_full = 0
        self._refusals = Refusals()
        self._view_number = view_number
        self._epoch = 0
        self._sequence = 0
        self._acknowledged = 0
        self._acknowledged_fence = -1
        self._queue: deque[tuple[bytes, tuple[int, ...]]] = deque()
        self._queue_bytes = 0
        self._lost: list[int] = []
        self._control_turn = False
        self._before_summary = 0  # queue entries that must go out before the summary
        self._unacked: deque[Batch] = deque()
        self._unacked_bytes = 0
        self._control: deque[Batch] = deque()  # hello and resync batches, not yet sent
        self._phase = _Phase.WANT_SUMMARY
        self._attempt = 0
        self._attempt_at = 0.0
        self._summary = ZERO_SUMMARY
        self._asked_sequence = 0
        self._groups: deque[bytes] = deque()
        self._echo: deque[bytes] | None = None  # not None: keep all rows sent, for the echo
        self._echo_bytes = 0
        self._as_of = 0

    # --- connection

    def connect(self, epoch: int) -> None:
        """A connection is up. `epoch` exceeds all earlier ones, also those of earlier objects."""
        self.connected = True
        self.broken = ""
        self.overdue = False
        self._epoch = epoch
        self._sequence = 0
        self._acknowledged = 0
        self._acknowledged_fence = -1
        self._restart()
        self._control.append(self._make(Kind.HELLO))

    def disconnect(self) -> list[int]:
        """Returns the lost tickets. Their records stay queued, if they fit, and go out first on
        the next connection."""
        lost = [t for batch in self._unacked for t in batch.tickets]
        lost += [t for _, tickets in self._queue for t in tickets]
        rows = [b.payload for b in self._unacked if b.kind is Kind.ROWS]
        rows += [payload for payload, _ in self._queue]
        self.connected = False
        self._unacked.clear()
        self._unacked_bytes = 0
        self._queue = deque((payload, ()) for payload in rows)
        self._queue_bytes = sum(map(len, rows))
        if self._queue_bytes > QUEUE_BYTES_MAX:
            self._drop_queue()
        self._restart()
        return lost + self.take_lost()

    def set_view(self, number: int) -> None:
        """The ring has changed, and with it this owner's records: resync."""
        if number != self._view_number:
            self._view_number = number
            self.has_view = False
            self._restart()

    def resync(self) -> None:
        """Changes were lost on our side: compare anew."""
        self.exact = False
        self._restart()

    def _restart(self) -> None:
        # Safe halfway: the next whole resync repairs whatever this one has left at the owner.
        self._control = deque(b for b in self._control if b.kind is Kind.HELLO and self.connected)
        self._phase = _Phase.WANT_SUMMARY
        self._attempt += 1
        self._groups.clear()
        self._echo = None
        self._echo_bytes = 0

    # --- records

    def offer(self, rows: bytes, ticket: int = 0) -> bool:
        """Queues records, perhaps none. True if `ticket` will come back from ack(), disconnect() or
        take_lost(). ack() returns it once the owner also has all records queued before."""
        if self._queue_bytes + len(rows) > QUEUE_BYTES_MAX:
            self._drop_queue()
            self._restart()
            return False
        track = ticket != 0 and self.connected
        for start in range(0, len(rows) or 1, BATCH_BYTES_MAX):
            last = start + BATCH_BYTES_MAX >= len(rows)
            part = rows if last and start == 0 else rows[start : start + BATCH_BYTES_MAX]
            self._queue.append((part, (ticket,) if track and last else ()))
        self._queue_bytes += len(rows)
        return track

    def _drop_queue(self) -> None:
        # Bounds the memory: the resync finds these records in the pool again.
        self.overflows += 1
        self.exact = False
        self._lost += [t for _, tickets in self._queue for t in tickets]
        self._queue.clear()
        self._queue_bytes = 0
        self._before_summary = 0

    def take_lost(self) -> list[int]:
        """Tickets of records that offer() dropped from a full queue."""
        lost, self._lost = self._lost, []
        return lost

    # --- resync, the driver's part

    def wanted(self) -> Want | None:
        if not self.connected:
            return None
        if self._phase is _Phase.WANT_SUMMARY:
            return Want(self._attempt)
        if self._phase is _Phase.WANT_ROWS:
            return Want(self._attempt, self._groups[0])
        return None

    def scanning(self, want: Want) -> None:
        """The driver starts the scan now: the scan may miss changes from here on."""
        if want.attempt != self._attempt:
            return
        self._phase = _Phase.SCANNING
        if want.mask:
            self._echo = deque()
            self._echo_bytes = 0
        else:
            # Send queued records before the summary. An addition may be queued while its withdrawal
            # was lost. The summary lacks it, so behind the summary nothing would ever remove it.
            self._before_summary = len(self._queue)

    def give_summary(self, attempt: int, as_of: int, summary: bytes) -> None:
        if attempt != self._attempt or self._phase is not _Phase.SCANNING:
            return
        self.resyncs += 1
        self._summary = summary
        self._as_of = as_of
        self._ask(Kind.FINGERPRINT, fingerprint_of(summary))

    def _ask(self, kind: Kind, payload: bytes) -> None:
        self._asked_sequence = 0  # numbered when sent
        self._control.append(self._make(kind, payload))
        self._phase = _Phase.AWAIT_ANSWER

    def give_rows(self, attempt: int, as_of: int, buckets: Mapping[int, bytes]) -> None:
        """`buckets`: the rows of each wanted bucket; an empty bucket may be left out."""
        if attempt != self._attempt or self._phase is not _Phase.SCANNING:
            return
        self._as_of = as_of
        mask = self._groups.popleft()
        for bucket in range(BUCKETS):
            if mask[bucket]:
                batch = self._make(Kind.BUCKET, buckets.get(bucket, b""))
                batch.bucket = bucket
                batch.as_of = as_of
                self._control.append(batch)
        self._phase = _Phase.SENDING

    # --- the wire

    def next_batch(self, now: float) -> Batch | None:
        """The batch to send now; None while the window is full or nothing is queued."""
        if not self.connected or self.broken:
            return None
        if len(self._unacked) >= WINDOW_BATCHES or self._unacked_bytes >= WINDOW_BYTES:
            return None
        batch = self._choose()
        if batch is None:
            return None
        self._sequence += 1
        batch.sequence = self._sequence
        batch.epoch = self._epoch
        batch.fence = self._fence()
        batch.sent_at = now
        if batch.kind in (Kind.FINGERPRINT, Kind.SUMMARY):
            self._asked_sequence = batch.sequence
            self._attempt_at = now
        self._unacked.append(batch)
        self._unacked_bytes += len(batch.payload)
        return batch

    def _choose(self) -> Batch | None:
        if self._control and self._control[0].kind is Kind.HELLO:
            return self._control.popleft()
        if self._phase is _Phase.SENDING and not self._control:
            # The buckets are sent: now the echo, before any newer record.
            assert self._echo is not None
            while self._echo:
                if rows := self._native.standing(self._echo[0], b"".join(self._echo)):
                    self._echo.popleft()
                    return self._make(Kind.ROWS, rows)
                self._echo.popleft()
            self._echo = None
            self._echo_bytes = 0
            if self._groups:
                self._phase = _Phase.WANT_ROWS
            else:
                self._finish()
        # A full echo holds new records back until the buckets are sent. Else the two take turns, so
        # that neither a resync nor a publish waits for the whole of the other.
        held = self._echo is not None and self._echo_bytes >= ECHO_BYTES_MAX
        early = self._before_summary > 0
        if self._queue and not held and (early or not (self._control and self._control_turn)):
            self._control_turn = True
            return self._rows_batch()
        self._control_turn = False
        if not self._control:
            return None
        batch = self._control.popleft()
        if batch.kind is Kind.BUCKET and self._echo:
            batch.payload = self._native.standing(batch.payload, b"".join(self._echo))
        return batch

    def _rows_batch(self) -> Batch:
        payload, tickets = self._pop_queue()
        if self._queue and len(payload) + len(self._queue[0][0]) <= BATCH_BYTES_MAX:
            payloads, size = [payload], len(payload)
            while self._queue and size + len(self._queue[0][0]) <= BATCH_BYTES_MAX:
                more, more_tickets = self._pop_queue()
                payloads.append(more)
                tickets += more_tickets
                size += len(more)
            payload = b"".join(payloads)
        if self._echo is not None:
            self._echo.append(payload)
            self._echo_bytes += len(payload)
        batch = self._make(Kind.ROWS, payload)
        batch.tickets = tickets
        return batch

    def _pop_queue(self) -> tuple[bytes, tuple[int, ...]]:
        rows, tickets = self._queue.popleft()
        self._queue_bytes -= len(rows)
        self._before_summary = max(self._before_summary - 1, 0)
        return rows, tickets

    def _finish(self) -> None:
        batch = self._make(Kind.SYNC_DONE)
        batch.as_of = self._as_of
        self._control.append(batch)
        self._phase = _Phase.FINISHING

    def _make(self, kind: Kind, payload: bytes = b"") -> Batch:
        return Batch(kind, self._epoch, 0, self._view_number, payload)

    def ack(self, ack: Ack) -> list[int]:
        """Returns the acknowledged tickets. Sets `broken` if the owner missed a batch or answers
        nonsense."""
        if not self.connected:
            return []
        if ack.gap:
            self.broken = f"the owner missed batch {ack.sequence + 1}"
            return []
        if ack.sequence > self._sequence:
            self.broken = f"the owner acknowledged batch {ack.sequence} of {self._sequence}"
            return []
        self.refused_full += ack.refused_full
        done: list[int] = []
        while self._unacked and self._unacked[0].sequence <= ack.sequence:
            batch = self._unacked.popleft()
            self._unacked_bytes -= len(batch.payload)
            self._acknowledged_fence = batch.fence
            done += batch.tickets
            if batch.kind is Kind.SYNC_DONE and self._phase is _Phase.FINISHING:
                self._synced()
        self._acknowledged = max(self._acknowledged, ack.sequence)
        if self._phase is _Phase.AWAIT_ANSWER and ack.sequence == self._asked_sequence:
            self.has_view = self.has_view or ack.same is not None
            if ack.same:
                self._synced()
            elif ack.same is not None:
                self._ask(Kind.SUMMARY, self._summary)
            elif ack.differing:
                self._answer(ack.differing)
        return done

    def _synced(self) -> None:
        self._phase = _Phase.SYNCED
        self.exact = True

    def _answer(self, differing: bytes) -> None:
        if len(differing) != BUCKETS:
            self.broken = f"the owner's mask has {len(differing)} bytes, not {BUCKETS}"
            return
        self._groups = deque(bucket_groups(differing, self._summary, GROUP_ROWS_MAX))
        if self._groups:
            self._phase = _Phase.WANT_ROWS
        else:
            self._finish()

    def check(self, now: float) -> None:
        """Sets `broken` if an acknowledgement is overdue. Begins a resync when a retry of refused
        records is due."""
        if not self.connected or self.broken:
            return
        if self._refusals.due(self.refused_full, self.in_sync, now):
            self._restart()
        if self._unacked and now - self._unacked[0].sent_at > ACK_TIMEOUT_S:
            self.broken = f"no acknowledgement for {ACK_TIMEOUT_S:g} s"
            self.overdue = True
        elif (
            self._phase is _Phase.AWAIT_ANSWER
            and self._asked_sequence
            and now - self._attempt_at > ANSWER_TIMEOUT_S
        ):
            self.broken = f"the owner has not compared what it has for {ANSWER_TIMEOUT_S:g} s"

    # --- for status and a clean stop

    @property
    def idle(self) -> bool:
        """Whether no batch or record is queued or unacknowledged. A resync may be in progress."""
        return not self._queue and not self._unacked

    @property
    def at_rest(self) -> bool:
        """Idle, and the owner rejects all earlier publish frames."""
        return self.idle and self._acknowledged_fence == self._fence()

    @property
    def behind(self) -> bool:
        return self._queue_bytes + self._unacked_bytes > BEHIND_BYTES

    @property
    def in_sync(self) -> bool:
        return self.connected and self._phase is _Phase.SYNCED

    def status(self) -> dict[str, object]:
        """Fields of admin.status.Stream, and more."""
        return {
            "state": self._state(),
            "acknowledged": self._acknowledged,
            "queued": len(self._unacked) + len(self._queue),
            "queued_bytes": self._unacked_bytes + self._queue_bytes,
            "resyncs": self.resyncs,
            "overflows": self.overflows,
            "refused_full": self.refused_full,
        }

    def lag_s(self, now: float) -> float:
        """Age in seconds of the oldest unacknowledged batch; 0 if there is none."""
        return max(now - self._unacked[0].sent_at, 0.0) if self._unacked else 0.0

    def _state(self) -> str:
        if not self.connected:
            return "connecting"
        return "live" if self._phase is _Phase.SYNCED else "resync"
