"""Our own records in our own shard: without a stream, but with the same resync."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from peercached.directory.layout import (
    SELF,
    ZERO_SUMMARY,
    bucket_groups,
    differing_buckets,
)
from peercached.directory.native import Native
from peercached.directory.refusals import Refusals
from peercached.directory.stream import ECHO_BYTES_MAX, GROUP_ROWS_MAX, Want

if TYPE_CHECKING:
    from peercached._native import Engine


class LocalShard:
    """Applies our records; repairs our shard after a new ring or lost updates. Not thread safe.

    As in stream.py, records applied during a scan of the pool are applied again after the buckets:
    the echo. Otherwise a bucket could undo a withdrawal. Buckets and echo omit records withdrawn
    meanwhile.
    """

    def __init__(self, engine: Engine, native: Native, on_refused: Callable[[], None]) -> None:
        """`on_refused` is called when our shard refuses a record of ours: its misses are no longer
        final."""
        self._on_refused = on_refused
        self._engine = engine
        self._native = native
        self._view_number = 0
        self._wanted = True
        self._resyncing = True
        self._attempt = 0
        self._groups: deque[bytes] = deque()
        self._echo: list[bytes] | None = None
        self._echo_bytes = 0
        self.in_sync_for = -1
        self.refused_full = 0
        self.resyncs = 0
        self.exact = True  # our shard has no record of a page that our pool lacks
        self._complete = True  # no refusal since the last summary
        self._refusals = Refusals()

    def apply(self, rows: bytes) -> None:
        self._refused(self._engine.shard_apply(SELF, rows)[4])
        if self._echo is not None:
            self._echo.append(rows)
            self._echo_bytes += len(rows)
            if self._echo_bytes > ECHO_BYTES_MAX:
                self._restart()

    def _refused(self, count: int) -> None:
        if count:
            self.refused_full += count
            self._complete = False
            self.in_sync_for = -1
            self._on_refused()

    def check(self, now: float) -> None:
        """Begins a resync when a retry of refused records is due."""
        if self._refusals.due(self.refused_full, not self._resyncing, now):
            self._restart()

    def set_view(self, number: int) -> None:
        self._view_number = number
        self._restart()

    def resync(self) -> None:
        """Changes were lost on their way here: compare anew."""
        self.exact = False
        self._restart()

    def _restart(self) -> None:
        self._attempt += 1
        self._wanted = True
        self._resyncing = True
        self._groups.clear()
        self._echo = None
        self._echo_bytes = 0

    def wanted(self) -> Want | None:
        if not self._wanted:
            return None
        return Want(self._attempt, self._groups[0] if self._groups else b"")

    def scanning(self, want: Want) -> None:
        if want.attempt != self._attempt:
            return
        self._wanted = False
        if want.mask:
            self._echo = []
            self._echo_bytes = 0

    def give_summary(self, attempt: int, as_of: int, summary: bytes) -> None:
        if attempt != self._attempt:
            return
        self.resyncs += 1
        self._complete = True
        mask = differing_buckets(summary or ZERO_SUMMARY, self._engine.shard_summary(SELF))
        self._groups = deque(bucket_groups(mask, summary or ZERO_SUMMARY, GROUP_ROWS_MAX))
        self._next()

    def give_rows(self, attempt: int, as_of: int, buckets: Mapping[int, bytes]) -> None:
        if attempt != self._attempt:
            return
        mask = self._groups.popleft()
        echo = b"".join(self._echo or ())
        for bucket, wanted in enumerate(mask):
            if wanted:
                rows = self._native.standing(buckets.get(bucket, b""), echo)
                self._refused(self._engine.shard_replace(SELF, bucket, as_of, rows)[4])
        self._refused(self._engine.shard_apply(SELF, self._native.standing(echo, echo))[4])
        self._echo = None
        self._next()

    def _next(self) -> None:
        self._wanted = self._resyncing = bool(self._groups)
        self.exact = self.exact or not self._groups
        if not self._groups and self._complete:
            self.in_sync_for = self._view_number
