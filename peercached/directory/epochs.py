"""Namespace epochs on heartbeats, so that a node that missed a clear() learns of it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import TYPE_CHECKING

from peercached.directory.epoch_keeper import EpochKeeper
from peercached.directory.epoch_store import EpochStore
from peercached.directory.layout import DIGEST_BYTES

if TYPE_CHECKING:
    from peercached._native import Engine

EPOCH_MAX = 1 << 62
EPOCHS_PER_MESSAGE_MAX = 64


class TooManyNamespaces(ValueError):
    """No room for one more cleared namespace; until the restart of this daemon, that is."""


class Epochs:
    """The engine has the epochs; this says which to tell next, checks what is told, and keeps
    them over restarts."""

    def __init__(self, engine: Engine, store: EpochStore | None = None) -> None:
        self._engine = engine
        self._at = 0
        self.keeper = EpochKeeper(store or EpochStore("", ""), self.all)

    def all(self) -> dict[bytes, int]:
        return dict(self._engine.namespace_epochs())

    def some(self) -> list[tuple[bytes, int]]:
        """A bounded part of the table, another one each time: after a few heartbeats
        everybody has heard all."""
        table = sorted(self._engine.namespace_epochs().items())
        if len(table) <= EPOCHS_PER_MESSAGE_MAX:
            return table
        start = self._at % len(table)
        self._at = start + EPOCHS_PER_MESSAGE_MAX
        return (table + table)[start : start + EPOCHS_PER_MESSAGE_MAX]

    def learn(self, epochs: Iterable[tuple[bytes, int]]) -> None:
        for namespace_id, epoch in epochs:
            with contextlib.suppress(TooManyNamespaces):  # of no use to who told us
                self.raise_to(namespace_id, epoch)

    def raise_to(self, namespace_id: bytes, epoch: int) -> int:
        """Returns the epoch that holds here now. ValueError for what cannot be one, and when the
        table is full: an epoch that is not in force must not be reported as if it were."""
        if len(namespace_id) != DIGEST_BYTES:
            raise ValueError(f"a namespace id of {len(namespace_id)} bytes, not {DIGEST_BYTES}")
        if not 0 < epoch < EPOCH_MAX:
            raise ValueError(f"epoch {epoch} of a namespace is not within 1..{EPOCH_MAX - 1}")
        if self._engine.raise_epoch(namespace_id, epoch):
            self.keeper.raised()
            return epoch
        known = self.of(namespace_id)
        if known < epoch:
            raise TooManyNamespaces(
                "too many namespaces were cleared since this daemon started: restart it"
            )
        return known

    def next_of(self, namespace_id: bytes, now_us: int) -> int:
        """For a clear. By the wall clock: a node that was cut off and has ended since may have
        cleared with an epoch that nobody knows here. Its pages must not count."""
        return max(self.of(namespace_id) + 1, now_us)

    def of(self, namespace_id: bytes) -> int:
        """The one in force here; 0: it was never cleared. ValueError: no id."""
        return self._engine.namespace_epoch(namespace_id)
