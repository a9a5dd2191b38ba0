"""OwnerSide: the owner's end of all record streams. It decides whether misses are final."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from peercached.directory.layout import (
    BUCKETS,
    FINGERPRINT_BYTES,
    ROW_BYTES,
    SELF,
    SUMMARY_BYTES,
    check_packed,
    differing_buckets,
    fingerprint_of,
)
from peercached.directory.messages import Ack, Batch, Kind

if TYPE_CHECKING:
    from peercached._native import Engine


# Withdrawals sent to a stopped process wait in its sockets. So after a stop longer than _PAUSE_S
# nothing is final for _READ_WITHIN_S, while the process reads them. The engine's "final" expires
# after _KEEP_MS unless renewed: native threads may answer before tend() notices the stop.
_PAUSE_S = 0.3
_READ_WITHIN_S = 0.5
_KEEP_MS = 300

_QUESTION_BYTES = {Kind.FINGERPRINT: FINGERPRINT_BYTES, Kind.SUMMARY: SUMMARY_BYTES}


@dataclass(slots=True)
class _Holder:
    epoch: int = 0
    expected: int = 1
    gap: bool = False  # a batch was missing; the stream is useless until the next hello
    fence: int = 0  # publish frames with a lower one are rejected
    complete: bool = True  # no refusal since the last resync began
    # A question for a view that we do not have yet: answered when we do.
    waiting: Batch | None = None


class OwnerSide:
    """Sans-I/O; not thread safe. Holders are local indices of members of the view."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._view_number = 0
        self._holders: dict[int, _Holder] = {}
        # "Not here" is final only while this set is empty.
        self._unsynced: set[int] = set()
        self._said_final = False
        self._tended_at: float | None = None
        self._up_to_date_at = float("-inf")
        self._up_to_date = True
        self.gaps = 0
        self.refused_full = 0

    def tend(self, now: float) -> None:
        """Call it every 0.1 s. Detects stops of this process. `now`: monotonic seconds."""
        if self._tended_at is not None and now - self._tended_at > _PAUSE_S:
            self._up_to_date_at = now + _READ_WITHIN_S
        self._tended_at = now
        self._up_to_date = now >= self._up_to_date_at
        if self._up_to_date:
            self._engine.keep_final(_KEEP_MS)

    def view_changes(self) -> None:
        """Call it before the engine gets another ring: nothing is final until set_view()."""
        self._unsynced.add(SELF)
        self._say_final()

    def set_view(self, number: int, holders: Iterable[int]) -> list[tuple[int, int, Ack]]:
        """Call it when the engine has that view's ring. Returns the answers that waited for it:
        (holder, stream epoch, acknowledgement)."""
        self._view_number = number
        wanted = set(holders) | {SELF}
        for gone in self._holders.keys() - wanted:
            del self._holders[gone]
        for holder in wanted:
            self._holders.setdefault(holder, _Holder())
        self._unsynced = set(wanted)
        answers = []
        for holder, state in self._holders.items():
            if (question := state.waiting) is not None and question.view_number <= number:
                state.waiting = None
                answers.append((holder, state.epoch, self._compare(holder, state, question)))
        self._say_final()
        return answers

    def own_records_in_sync(self, view_number: int) -> None:
        """All records of our own pool are in our own shard (local.py)."""
        if view_number == self._view_number:
            self._unsynced.discard(SELF)
            self._say_final()

    def own_records_refused(self) -> None:
        """Our own shard has no room for our own records."""
        self._unsynced.add(SELF)
        self._say_final()

    def batch(self, holder: int, batch: Batch) -> Ack | None:
        """Applies one batch; None if it needs no answer. Raises LookupError if the holder is not
        in our view, ValueError if the batch is malformed."""
        state = self._holders.get(holder)
        if state is None:
            raise LookupError(f"holder {holder} is not in view {self._view_number}")
        if batch.fence > state.fence:
            # Raise it first: a late frame must not bring back a record that this batch withdraws.
            self._engine.raise_fence(holder, batch.fence)
            state.fence = batch.fence
        if batch.kind is Kind.HELLO:
            return self._hello(holder, state, batch)
        if batch.epoch != state.epoch:
            return None  # of an earlier connection
        if batch.sequence != state.expected:
            if batch.sequence < state.expected:
                return Ack(state.expected - 1)
            return self._gap(holder, state)
        ack = self._apply(holder, state, batch)
        state.expected += 1
        self._say_final()
        return ack

    def _hello(self, holder: int, state: _Holder, batch: Batch) -> Ack | None:
        if batch.epoch < state.epoch:
            return None
        if batch.epoch > state.epoch:
            self._holders[holder] = _Holder(epoch=batch.epoch, expected=2)
            self._unsynced.add(holder)
            self._say_final()
            return Ack(1)
        return Ack(state.expected - 1)

    def _gap(self, holder: int, state: _Holder) -> Ack | None:
        self._unsynced.add(holder)
        self._say_final()
        if not state.gap:
            self.gaps += 1
        state.gap = True
        return Ack(state.expected - 1, gap=True)

    def _apply(self, holder: int, state: _Holder, batch: Batch) -> Ack:
        payload, full = batch.payload, 0
        if batch.kind is Kind.ROWS:
            check_packed(payload, ROW_BYTES, "records")
            full = self._engine.shard_apply(holder, payload)[4]
        elif batch.kind is Kind.BUCKET:
            check_packed(payload, ROW_BYTES, f"records of bucket {batch.bucket}")
            if not 0 <= batch.bucket < BUCKETS:
                raise ValueError(f"bucket {batch.bucket}: there are {BUCKETS}")
            full = self._engine.shard_replace(holder, batch.bucket, batch.as_of, payload)[4]
        elif batch.kind in _QUESTION_BYTES:
            what, size = batch.kind.name.lower(), _QUESTION_BYTES[batch.kind]
            if len(payload) != size:
                raise ValueError(f"a {what} of {len(payload)} bytes, not {size}")
            state.complete = True
            if batch.view_number > self._view_number:
                # Our older ring would select other digests than the holder's: wait for the view.
                state.waiting = batch
                return Ack(batch.sequence)
            state.waiting = None
            return self._compare(holder, state, batch)
        elif batch.view_number == self._view_number and state.complete:  # Kind.SYNC_DONE
            self._unsynced.discard(holder)
        if full:
            # A record was refused, so "not here" is not final any more.
            self.refused_full += full
            state.complete = False
            self._unsynced.add(holder)
        return Ack(batch.sequence, refused_full=full)

    def _compare(self, holder: int, state: _Holder, question: Batch) -> Ack:
        ours = self._engine.shard_summary(holder)
        if question.kind is Kind.SUMMARY:
            return Ack(question.sequence, differing=differing_buckets(ours, question.payload))
        same = fingerprint_of(ours) == question.payload
        whole = state.complete and not state.gap  # the question may have waited
        if same and whole and question.view_number == self._view_number:
            self._unsynced.discard(holder)
        return Ack(question.sequence, same=same)

    def closed(self, holder: int, epoch: int) -> None:
        """The connection of that epoch ended: we miss the holder's changes from now on."""
        state = self._holders.get(holder)
        if state is not None and state.epoch == epoch:
            self._unsynced.add(holder)
            self._say_final()
            state.waiting = None

    def final(self, view_number: int) -> bool:
        """Whether a miss here is final for a reader with that view."""
        return view_number == self._view_number and self._up_to_date and not self._unsynced

    def _say_final(self) -> None:
        final = not self._unsynced
        if final != self._said_final:
            self._said_final = final
            self._engine.set_shard_final(final, self._view_number)

    def unsynced(self) -> set[int]:
        """Holders that may have records, for the current view, that are not here yet."""
        return self._unsynced
