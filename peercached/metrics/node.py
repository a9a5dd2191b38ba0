"""This daemon's process: version and resource use."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping
from typing import Any

from prometheus_client import Metric, ProcessCollector
from prometheus_client.core import InfoMetricFamily

from peercached.metrics.single import Single, singles

_SINGLES = (
    Single("gauge", "metrics_connections", "metrics.connections", "Connections to this port."),
    Single("counter", "metrics_requests", "metrics.requests", "Requests to this port."),
    Single("counter", "metrics_refused", "metrics.refused", "Connections refused at the bound."),
    Single(
        "counter", "metrics_displaced", "metrics.displaced", "Silent connections that made room."
    ),
    Single("counter", "metrics_bad_requests", "metrics.bad", "Requests that made no sense."),
    Single("counter", "metrics_cut", "metrics.cut", "Clients cut off for being too slow."),
    Single("counter", "metrics_failures", "metrics.failed", "Requests that failed by our fault."),
)

_process = ProcessCollector(registry=None)


def families(status: Mapping[str, Any]) -> Iterator[Metric]:
    node, transport = status.get("node", {}), status.get("transport", {})
    yield _info(
        "build",
        "The software; its value is always 1.",
        version=node.get("version", ""),
        python=platform.python_version(),
    )
    yield _info(
        "node",
        "This node; its value is always 1.",
        node_id=node.get("id", ""),
        protocol=transport.get("protocol", ""),
    )
    yield from singles(status, _SINGLES)
    yield from _process.collect()


def _info(name: str, about: str, **labels: str) -> Metric:
    family = InfoMetricFamily(f"peercached_{name}", about, labels=list(labels))
    family.add_metric([], labels)
    return family
