"""Batches of records that wait until their owners have acknowledged them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from peercached._native import Engine


@dataclass(slots=True)
class PendingBatch:
    """`done` gets the owners in `failed`."""

    rows: bytes
    waiting: dict[int, bytes]  # owner -> its part
    accepted: list[bytes]  # parts that an owner has applied
    deadline: float
    fair: bool  # the owners get the whole timeout, so missing it counts against them
    done: Callable[[set[int]], None]
    failed: set[int]  # owners


class PendingBatches:
    """By ticket. Sans-I/O; not thread safe; `now` is monotonic seconds."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._batches: dict[int, PendingBatch] = {}
        self.unreached = 0  # batches answered although no owner had applied any part
        self.timeouts = 0

    @property
    def idle(self) -> bool:
        return not self._batches

    def add(self, ticket: int, batch: PendingBatch) -> None:
        """Answers the batch at once if it waits for nobody."""
        if batch.waiting:
            self._batches[ticket] = batch
        else:
            self._finish(batch)

    def acknowledged(self, owner: int, tickets: Iterable[int]) -> None:
        for ticket in tickets:
            batch = self._batches.get(ticket)
            if batch is None:
                continue
            part = batch.waiting.pop(owner, None)
            if part is not None:
                batch.accepted.append(part)
            if not batch.waiting:
                del self._batches[ticket]
                self._finish(batch)

    def lost(self, owner: int, tickets: Iterable[int]) -> None:
        """The owner's stream broke, or dropped these tickets."""
        for ticket in tickets:
            self._give_up(owner, ticket)

    def stop_waiting_for(self, owner: int) -> None:
        """The owner is suspect: no batch waits for it any more."""
        for ticket in [t for t, batch in self._batches.items() if owner in batch.waiting]:
            self._give_up(owner, ticket)

    def _give_up(self, owner: int, ticket: int) -> None:
        batch = self._batches.get(ticket)
        if batch is None or batch.waiting.pop(owner, None) is None:
            return
        batch.failed.add(owner)
        if not batch.waiting:
            del self._batches[ticket]
            self._finish(batch)

    def expire(self, now: float) -> set[int]:
        """Answers overdue batches. Returns the owners that let the whole timeout pass: the next
        batch should not wait for them."""
        silent: set[int] = set()
        for ticket in [t for t, batch in self._batches.items() if now >= batch.deadline]:
            batch = self._batches.pop(ticket)
            self.timeouts += 1
            if batch.fair:
                silent |= batch.waiting.keys()
            batch.failed |= batch.waiting.keys()
            self._finish(batch)
        return silent

    def _finish(self, batch: PendingBatch) -> None:
        # If an owner failed, only the parts that another owner applied are visible to readers. So
        # mark only those as published.
        if not batch.failed:
            self._engine.mark_published(batch.rows)
        else:
            for part in batch.accepted:
                self._engine.mark_published(part)
            self.unreached += bool(batch.rows) and not batch.accepted
        batch.done(batch.failed)
