"""Page counts and speeds of transfers, for SGLang's StorageMetricsCollector."""

from __future__ import annotations

import threading
from typing import Final, NamedTuple

# SGLang collects the samples in each pass of its loop. If it stops, memory must not grow.
_SAMPLES_MAX: Final = 1024


class Samples(NamedTuple):
    prefetch_pages: list[int]
    backup_pages: list[int]
    prefetch_gb_per_s: list[float]
    backup_gb_per_s: list[float]


class TransferMetrics:
    """Thread safe. `take` never waits for a transfer."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._samples = Samples([], [], [], [])

    def prefetched(self, pages: int, size_bytes: int, took_s: float) -> None:
        with self._lock:
            _add(self._samples.prefetch_pages, pages)
            _add(self._samples.prefetch_gb_per_s, size_bytes / 1e9 / max(took_s, 1e-9))

    def backed_up(self, pages: int, size_bytes: int, took_s: float) -> None:
        with self._lock:
            _add(self._samples.backup_pages, pages)
            _add(self._samples.backup_gb_per_s, size_bytes / 1e9 / max(took_s, 1e-9))

    def take(self) -> Samples:
        """The samples since the last call."""
        with self._lock:
            samples, self._samples = self._samples, Samples([], [], [], [])
        return samples


def _add(samples: list[int] | list[float], value: float) -> None:
    if len(samples) < _SAMPLES_MAX:
        samples.append(value)  # type: ignore[arg-type]
