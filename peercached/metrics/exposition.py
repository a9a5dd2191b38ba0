"""Converts families to Prometheus' text format without blocking the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator

from prometheus_client import Metric, generate_latest

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class _One:
    """One family in the form of a registry, which prometheus_client can write."""

    def __init__(self, family: Metric) -> None:
        self._family = family

    def collect(self) -> Iterator[Metric]:
        yield self._family


_SAMPLES_AT_ONCE = 200


async def exposition(families: Iterable[Metric]) -> bytes:
    """The whole text. It lets the event loop run between families, and within large ones. In a
    large cluster, writing all at once would block the loop longer than a page transfer takes."""
    parts = []
    for family in families:
        samples = family.samples
        for first in range(0, len(samples) or 1, _SAMPLES_AT_ONCE):
            family.samples = samples[first : first + _SAMPLES_AT_ONCE]
            text = generate_latest(_One(family))
            parts.append(text if first == 0 else _without_head(text))
            await asyncio.sleep(0)
    return b"".join(parts)


def _without_head(text: bytes) -> bytes:
    """Drops HELP and TYPE lines, which must appear once per family, before its samples."""
    return b"".join(line for line in text.splitlines(True) if not line.startswith(b"# "))
