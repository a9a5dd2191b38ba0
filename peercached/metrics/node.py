"""This daemon's process: version and resource use."""

from __future__ import annotations

import platform
from collections.abc import Iterator

from prometheus_client import Metric, ProcessCollector
from prometheus_client.core import InfoMetricFamily

from peercached.admin.status import Status
from peercached.metrics.table import Counter, Gauge, singles

_SINGLES = (
    Gauge("metrics_connections", "metrics.connections", "Connections to this port."),
    Counter("metrics_requests", "metrics.requests", "Requests to this port."),
    Counter(
        "metrics_refused",
        "metrics.refused",
        "Requests to this port beyond its limit.",
    ),
    Counter(
        "metrics_displaced",
        "metrics.displaced",
        "Silent or slow connections closed to make room.",
    ),
    Counter("metrics_bad_requests", "metrics.bad", "Malformed requests."),
    Counter("metrics_cut", "metrics.cut", "Connections closed because the client was too slow."),
    Counter(
        "metrics_failures",
        "metrics.failed",
        "Requests that failed because of a daemon error.",
    ),
)

_process = ProcessCollector(registry=None)


def families(status: Status) -> Iterator[Metric]:
    yield _info(
        "build",
        "The software; the value is always 1.",
        version=status.node.version,
        python=platform.python_version(),
    )
    yield _info(
        "node",
        "This node; the value is always 1.",
        node_id=status.node.id,
        protocol=status.transport.protocol,
    )
    yield from singles(status, _SINGLES)
    yield from _process.collect()


def _info(name: str, about: str, **labels: str) -> Metric:
    family = InfoMetricFamily(f"peercached_{name}", about, labels=list(labels))
    family.add_metric([], labels)
    return family
