"""From families to Prometheus' text format, without holding up the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator

from prometheus_client import Metric, generate_latest

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class _One:
    """One family as a registry, which is what prometheus_client writes."""

    def __init__(self, family: Metric) -> None:
        self._family = family

    def collect(self) -> Iterator[Metric]:
        yield self._family


_SAMPLES_AT_ONCE = 200


async def exposition(families: Iterable[Metric]) -> bytes:
    """The whole text. The loop runs on between families, and within large ones: a large cluster's
    scrape at one go would take longer than a page does."""
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
    """Without the lines of HELP and TYPE, which stand once above all samples of a family."""
    return b"".join(line for line in text.splitlines(True) if not line.startswith(b"# "))
