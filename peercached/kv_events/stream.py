"""The numbered batches of events, and what to answer to a subscriber that has missed some.

    numbers   … 17 [18 19 20 21] 22       [..]: kept, up to BUFFER_BYTES
                                 └ next

    from 19   ──▶ 19 20 21
    from 7    ──▶ a snapshot, with the numbers just below 22
    from 30   ──▶ refused: there is no such batch yet

The first number of a process is the nanoseconds since 1970. So numbers rise over restarts, and a
restart is a gap. Subscribers take what comes with
a higher number, so a snapshot has numbers that they have not seen. If it needs more of them than
are free, the stream skips some.

Has no socket, no thread and no clock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

BUFFER_BYTES = 32 << 20
# What a kept batch takes beside its payload: an idle stream has one small batch a second.
BATCH_BYTES = 256
# A snapshot may serve several subscribers while it is so many batches old.
SNAPSHOT_BATCHES_OLD = 64


class Batch(NamedTuple):
    number: int
    topic: bytes
    payload: bytes


class FromTheFuture(ValueError):
    """No batch has that number yet."""


class Stream:
    def __init__(self, first: int, buffer_bytes: int = BUFFER_BYTES) -> None:
        self.next = first
        self._buffer_bytes = buffer_bytes
        self._kept: deque[Batch] = deque()
        self._kept_bytes = 0
        self._first_kept = first
        self._snapshot: list[tuple[bytes, bytes]] = []
        self._snapshot_at = -1

    def append(self, topic: bytes, payload: bytes) -> Batch:
        batch = Batch(self.next, topic, payload)
        self.next += 1
        self._kept.append(batch)
        self._kept_bytes += len(payload) + BATCH_BYTES
        while self._kept_bytes > self._buffer_bytes:
            dropped = self._kept.popleft()
            self._kept_bytes -= len(dropped.payload) + BATCH_BYTES
            self._first_kept = dropped.number + 1
        return batch

    def has(self, start: int) -> bool:
        """Whether all batches from that number on are kept. FromTheFuture."""
        if start > self.next:
            raise FromTheFuture(f"{start} is asked for, and {self.next} is the next")
        return start >= self._first_kept

    def needs_snapshot(self, start: int) -> bool:
        """Whether `replay` from there needs a new one. FromTheFuture."""
        at = self._snapshot_at
        if self.has(start):
            return False
        if at < self._first_kept or self.next - at > SNAPSHOT_BATCHES_OLD:
            return True
        # Only one that nothing follows can get other numbers.
        return at != self.next and at - start < len(self._snapshot)

    def keep_snapshot(self, batches: Sequence[tuple[bytes, bytes]]) -> None:
        """All that was told before the next number, as (topic, payload)."""
        self._snapshot = list(batches)
        self._snapshot_at = self.next

    def replay(self, start: int) -> Iterator[Batch]:
        """The batches to send, with those that are appended meanwhile. If `needs_snapshot`, call
        `keep_snapshot` first."""
        if self.has(start):
            return self._from(start)
        count = len(self._snapshot)
        if self._snapshot_at - start < count:
            # Too few numbers are free. All that is told later is above those that we take.
            self._snapshot_at = self.next = self.next + count
        return self._after_snapshot(self._snapshot, self._snapshot_at)

    def _after_snapshot(
        self, snapshot: list[tuple[bytes, bytes]], position: int
    ) -> Iterator[Batch]:
        first = position - len(snapshot)
        for i, (topic, payload) in enumerate(snapshot):
            yield Batch(first + i, topic, payload)
        yield from self._from(position)

    def _from(self, start: int) -> Iterator[Batch]:
        while start < self.next:
            batch = self._at(start)
            if batch is None:
                return  # dropped meanwhile: the subscriber sees a gap again
            start = batch.number + 1
            yield batch

    def _at(self, number: int) -> Batch | None:
        """The first kept batch from that number on; None if earlier ones were dropped."""
        if number < self._first_kept or not self._kept:
            return None
        # Numbers rise by one, except where the stream has skipped some.
        place = min(max(number - self._kept[0].number, 0), len(self._kept) - 1)
        while place > 0 and self._kept[place - 1].number >= number:
            place -= 1
        while self._kept[place].number < number:
            place += 1
            if place == len(self._kept):
                return None
        return self._kept[place]
