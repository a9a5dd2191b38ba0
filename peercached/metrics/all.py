"""All families, in the order in which they are served and documented."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client import Metric

from peercached.admin.status import Status
from peercached.metrics import (
    cluster,
    demand,
    directory,
    disk,
    latency,
    node,
    pool,
    removals,
    security,
    traffic,
    transport,
    workers,
)
from peercached.observe.latency import Latency


def families(status: Status, latencies: Iterable[Latency]) -> Iterator[Metric]:
    """All families, including those without samples."""
    for part in (
        node,
        demand,
        traffic,
        pool,
        disk,
        removals,
        directory,
        cluster,
        transport,
        workers,
        security,
    ):
        yield from part.families(status)
    yield from latency.families(latencies)
