"""This daemon's process: version and resource use."""

from __future__ import annotations

import platform
from collections.abc import Iterator

from prometheus_client import Metric, ProcessCollector
from prometheus_client.core import InfoMetricFamily

from peercached.admin.status import Status
from peercached.metrics.single import Single, singles

_SINGLES = (
    Single(
        "gauge", "metrics_connections", lambda s: s.metrics.connections, "Connections to this port."
    ),
    Single("counter", "metrics_requests", lambda s: s.metrics.requests, "Requests to this port."),
    Single(
        "counter",
        "metrics_refused",
        lambda s: s.metrics.refused,
        "Requests refused at the bound.",
    ),
    Single(
        "counter",
        "metrics_displaced",
        lambda s: s.metrics.displaced,
        "Silent or slow connections that made room.",
    ),
    Single(
        "counter", "metrics_bad_requests", lambda s: s.metrics.bad, "Requests that made no sense."
    ),
    Single(
        "counter", "metrics_cut", lambda s: s.metrics.cut, "Clients cut off for being too slow."
    ),
    Single(
        "counter",
        "metrics_failures",
        lambda s: s.metrics.failed,
        "Requests that failed by our fault.",
    ),
)

_process = ProcessCollector(registry=None)


def families(status: Status) -> Iterator[Metric]:
    yield _info(
        "build",
        "The software; its value is always 1.",
        version=status.node.version,
        python=platform.python_version(),
    )
    yield _info(
        "node",
        "This node; its value is always 1.",
        node_id=status.node.id,
        protocol=status.transport.protocol,
    )
    yield from singles(status, _SINGLES)
    yield from _process.collect()


def _info(name: str, about: str, **labels: str) -> Metric:
    family = InfoMetricFamily(f"peercached_{name}", about, labels=list(labels))
    family.add_metric([], labels)
    return family
