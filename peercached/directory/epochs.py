"""Spreads namespace epochs by heartbeats, so that a node that missed a clear() learns of it.

Each epoch occupies a row of a bounded table for ever, so it matters who may add one. Our own users
may, and members that owe no removal (peer/directory/shared_epochs.py), each within a rate limit
(first_clears.py). Others teach nobody: their epochs come when they have joined and compared.
Without a limit we believe only our own files, etcd, and what most members say when we start.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

from peercached.directory.first_clears import FIRST_CLEARS_MAX, FirstClears
from peercached.directory.layout import DIGEST_BYTES

if TYPE_CHECKING:
    from peercached._native import Engine

log = logging.getLogger(__name__)

EPOCH_MAX = 1 << 62
# Epochs are times in microseconds; this one is in the year 2540. We believe a later one that comes
# unasked only if it is a little above the epoch we know. Otherwise one message with EPOCH_MAX - 1
# would leave no epoch for the next clear.
EPOCH_TOLD_MAX = 1 << 54
EPOCH_STEP = 1 << 40
EPOCHS_PER_MESSAGE_MAX = 64


class TooManyNamespaces(ValueError):
    """No room for one more cleared namespace."""


class EpochTooHigh(ValueError):
    """The epoch is too far above the one known here."""


class Epochs:
    """Chooses the epochs to send, and checks those that peers send. The epochs in force are in the
    data plane. Not thread safe."""

    def __init__(self, engine: Engine, first_clears: FirstClears | None = None) -> None:
        self._engine = engine
        self._at = 0
        self._sorted: list[tuple[bytes, int]] = []
        self._sorted_mark = 0  # epochs_mark() of _sorted
        self._first_clears = first_clears or FirstClears(lambda: 0.0)

    def persist(self) -> None:
        """An epoch has risen. Nothing here; a subclass may write the epochs down."""

    def all(self) -> dict[bytes, int]:
        return dict(self._engine.namespace_epochs())

    def some(self) -> list[tuple[bytes, int]]:
        """A bounded part of the table, in rotation. After enough heartbeats every node has all."""
        mark = self._engine.epochs_mark()
        if mark != self._sorted_mark:  # sorting per heartbeat would keep a core busy
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
        """Takes these epochs. Skips those that are invalid, too high, or find no room. `asked`:
        most members or etcd say so."""
        for namespace_id, epoch in epochs:
            try:
                self.raise_to(namespace_id, epoch, asked, by)
            except EpochTooHigh:
                pass
            except ValueError as error:
                log.warning("ignored a namespace clear: %s", error)

    def raise_to(self, namespace_id: bytes, epoch: int, asked: bool = False, by: str = "") -> int:
        """Returns the epoch now in force here. `by`: the origin that wants it, for its rate
        limit; empty: no limit. Raises ValueError for an invalid or too high epoch, and if there is
        no room. Then the epoch is not in force, so a clear must not succeed."""
        known = self.of(namespace_id)
        if not 0 < epoch < EPOCH_MAX:
            raise ValueError(f"epoch {epoch} of a namespace is not within 1..{EPOCH_MAX - 1}")
        if not asked and not self.is_credible(namespace_id, epoch):
            raise EpochTooHigh(f"epoch {epoch} of a namespace is far above {known}, the one here")
        if by and known == 0 and not self._first_clears.take(by):
            raise TooManyNamespaces(
                f"{by} has cleared {FIRST_CLEARS_MAX} namespaces for the first time lately, the "
                "most that may be in a day"
            )
        if self._engine.raise_epoch(namespace_id, epoch):
            self.persist()
            return epoch
        known = self.of(namespace_id)
        if known < epoch:
            raise TooManyNamespaces(
                "too many namespaces have been cleared: the table of them is full, on all nodes"
            )
        return known

    def is_credible(self, namespace_id: bytes, epoch: int) -> bool:
        """Whether a peer can know of this epoch. It is 0 before the first clear."""
        if len(namespace_id) != DIGEST_BYTES:
            return False
        return 0 <= epoch <= max(EPOCH_TOLD_MAX, self.of(namespace_id) + EPOCH_STEP)

    def next_of(self, namespace_id: bytes, now_us: int) -> int:
        """The epoch for a clear. Uses the wall clock: a node that was cut off, and has ended since,
        may have cleared with an epoch unknown here. This clear must exceed that one, too."""
        return max(self.of(namespace_id) + 1, now_us)

    def of(self, namespace_id: bytes) -> int:
        """The epoch in force here; 0: never cleared. Raises ValueError for an invalid id."""
        if len(namespace_id) != DIGEST_BYTES:
            raise ValueError(f"a namespace id of {len(namespace_id)} bytes, not {DIGEST_BYTES}")
        return self._engine.namespace_epoch(namespace_id)
