"""The stream of events for several threads: one tells, and others follow.

kv_drain ──▶ append          under one lock, so a snapshot never falls between them:
kv_snapshot ──▶ its number   it has all changes with lower numbers
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

from peercached.kv_events.stream import Batch, Stream

if TYPE_CHECKING:
    from peercached._native import Engine


class SharedStream:
    def __init__(self, engine: Engine, stream: Stream) -> None:
        self._engine = engine
        self._stream = stream
        self._lock = threading.Lock()
        self.replays = 0
        self.snapshots = 0

    @property
    def next(self) -> int:
        return self._stream.next

    def drain(self, bytes_max: int) -> tuple[list[tuple[Batch, int]], bool]:
        """The batches that tell what has changed, each with its number of events, and whether there
        is more."""
        with self._lock:
            batches, more = self._engine.kv_drain(bytes_max)
            told = [(self._stream.append(topic, payload), n) for topic, payload, n in batches]
        return told, more

    def append(self, topic: bytes, payload: bytes) -> Batch:
        with self._lock:
            return self._stream.append(topic, payload)

    def replay(self, start: int) -> Iterator[Batch]:
        """For `take`: the batches from `start` on, or a snapshot and those after it.
        FromTheFuture."""
        with self._lock:
            if self._stream.needs_snapshot(start):
                self.snapshots += 1
                told = [(topic, payload) for topic, payload, _ in self._engine.kv_snapshot()]
                self._stream.keep_snapshot(told)
            self.replays += 1
            return self._stream.replay(start)

    def take(self, batches: Iterator[Batch], most: int) -> list[Batch]:
        """The next ones of a replay. If there are none, it is at its end, or they are not kept."""
        with self._lock:
            return list(itertools.islice(batches, most))

    def follow(self, start: int) -> Iterator[Batch] | None:
        """As `replay`, without a snapshot: None if one is needed."""
        with self._lock:
            return self._stream.replay(start) if self._stream.has(start) else None
