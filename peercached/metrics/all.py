"""All families, in the order in which they are served and documented."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from prometheus_client import Metric

from peercached.metrics import cluster, directory, node, pool, traffic, transport, workers


def families(status: Mapping[str, Any]) -> Iterator[Metric]:
    """Of a status document. A family is there even while it has no samples."""
    for part in (node, traffic, pool, directory, cluster, transport, workers):
        yield from part.families(status)
