"""All families, in the order of the page and of the document."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client import Metric

from peercached.admin.status import Status
from peercached.metrics import (
    cluster,
    cold,
    demand,
    directory,
    disk,
    gpus,
    hints,
    kv_events,
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

# By the title of its section in docs/metrics.md.
PARTS = {
    "Node and process": node,
    "Lookups of the workers": demand,
    "Traffic of the workers": traffic,
    "Pool": pool,
    "Disk tier": disk,
    "Object store": cold,
    "Removals": removals,
    "Directory": directory,
    "Cluster": cluster,
    "Network": transport,
    "Workers and strangers": workers,
    "GPUs": gpus,
    "Events of pages": kv_events,
    "Security": security,
    "Hints and routers": hints,
}


def families(status: Status, latencies: Iterable[Latency]) -> Iterator[Metric]:
    """All families, including those without samples."""
    for part in PARTS.values():
        yield from part.families(status)
    yield from latency.families(latencies)
