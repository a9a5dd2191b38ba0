"""Namespace epochs on heartbeats, so that a node that missed a clear() learns of it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from peercached.directory.epoch_keeper import EpochKeeper
from peercached.directory.epoch_store import EpochStore
from peercached.directory.first_clears import FIRST_CLEARS_MAX, FirstClears
from peercached.directory.layout import DIGEST_BYTES

if TYPE_CHECKING:
    from peercached._native import Engine

log = logging.getLogger(__name__)

EPOCH_MAX = 1 << 62
# Epochs are times in microseconds; this one is in the year 2540. A later one that comes unasked is
# believed only if it is a little above the epoch we know. Otherwise a single message with
# EPOCH_MAX - 1 would leave no epoch for the next clear.
EPOCH_TOLD_MAX = 1 << 54
EPOCH_STEP = 1 << 40
EPOCHS_PER_MESSAGE_MAX = 64


class TooManyNamespaces(ValueError):
    """No room for one more cleared namespace."""


class EpochTooHigh(ValueError):
    """Out of reach of what is known here."""


class Epochs:
    """The engine has the epochs; this says which to tell next, checks what is told, and keeps
    them over restarts."""

    def __init__(
        self,
        engine: Engine,
        store: EpochStore | None = None,
        clock: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._engine = engine
        self._at = 0
        self._sorted: list[tuple[bytes, int]] = []
        self._sorted_mark = 0  # that the table had then
        self._first_clears = FirstClears(clock)
        self.keeper = EpochKeeper(store or EpochStore("", ""), self.all)

    def all(self) -> dict[bytes, int]:
        return dict(self._engine.namespace_epochs())

    def some(self) -> list[tuple[bytes, int]]:
        """A bounded part of the table, another one each time: after a few heartbeats
        everybody has heard all."""
        mark = self._engine.epochs_mark()
        if mark != self._sorted_mark:  # sorting a long table for each heartbeat costs a processor
            self._sorted = sorted(self._engine.namespace_epochs().items())
            self._sorted_mark = mark
        table = self._sorted
        if len(table) <= EPOCHS_PER_MESSAGE_MAX:
            return table
        start = self._at % len(table)
        self._at = start + EPOCHS_PER_MESSAGE_MAX
        some = table[start : start + EPOCHS_PER_MESSAGE_MAX]
        return some + table[: EPOCHS_PER_MESSAGE_MAX - len(some)]

    def learn(self, epochs: Iterable[tuple[bytes, int]], asked: bool = False, by: str = "") -> None:
        """`asked`: they come in an answer to us. Skips epochs that cannot be taken."""
        for namespace_id, epoch in epochs:
            try:
                self.raise_to(namespace_id, epoch, asked, by)
            except EpochTooHigh:
                pass
            except TooManyNamespaces as error:
                log.warning("an epoch is not taken: %s", error)

    def raise_to(self, namespace_id: bytes, epoch: int, asked: bool = False, by: str = "") -> int:
        """Returns the epoch that holds here now. `by`: the node or user whose wish that is; empty:
        somebody without a bound. ValueError for what cannot be one, and where there is no room: an
        epoch that is not in force must not be reported as if it were."""
        if len(namespace_id) != DIGEST_BYTES:
            raise ValueError(f"a namespace id of {len(namespace_id)} bytes, not {DIGEST_BYTES}")
        if not 0 < epoch < EPOCH_MAX:
            raise ValueError(f"epoch {epoch} of a namespace is not within 1..{EPOCH_MAX - 1}")
        if not asked and epoch > max(EPOCH_TOLD_MAX, self.of(namespace_id) + EPOCH_STEP):
            raise EpochTooHigh(
                f"epoch {epoch} of a namespace is far above {self.of(namespace_id)}, the one here"
            )
        if by and self.of(namespace_id) == 0 and not self._first_clears.take(by):
            raise TooManyNamespaces(
                f"{by} has cleared {FIRST_CLEARS_MAX} namespaces for the first time lately, the "
                "most that may be in a day"
            )
        if self._engine.raise_epoch(namespace_id, epoch):
            self.keeper.raised()
            return epoch
        known = self.of(namespace_id)
        if known < epoch:
            raise TooManyNamespaces(
                "too many namespaces have been cleared: the table of them is full, on all nodes"
            )
        return known

    def next_of(self, namespace_id: bytes, now_us: int) -> int:
        """For a clear. By the wall clock: a node that was cut off and has ended since may have
        cleared with an epoch that nobody knows here. Its pages must not count."""
        return max(self.of(namespace_id) + 1, now_us)

    def of(self, namespace_id: bytes) -> int:
        """The one in force here; 0: it was never cleared. ValueError: no id."""
        return self._engine.namespace_epoch(namespace_id)
