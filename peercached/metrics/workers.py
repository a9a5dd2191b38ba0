"""The workers of this host."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from prometheus_client import Metric

from peercached.metrics.single import Single, gauge, singles

_SINGLES = (
    Single("gauge", "client_connections", "ipc.connections", "Connections of workers."),
    Single("counter", "client_connects", "ipc.accepted", "Connections of workers accepted."),
    Single("counter", "client_refused", "ipc.refused", "Connections of workers refused."),
    Single("counter", "client_bad_frames", "ipc.bad_frames", "Frames that made no sense."),
    Single(
        "counter",
        "client_regions_lost",
        "ipc.regions_lost",
        "Regions dropped because their worker cut the memory short.",
    ),
    Single(
        "counter",
        "client_requests_given_up",
        "ipc.given_up",
        "Requests that their worker did not wait for to the end.",
    ),
    Single(
        "counter",
        "events_dropped",
        "operations.control.events_dropped",
        "Requests dropped because the control plane did not keep up.",
    ),
)


def families(status: Mapping[str, Any]) -> Iterator[Metric]:
    workers = status.get("workers", ())
    for name, field, about in (
        ("client_regions", "regions", "Buffers that workers share with the daemon."),
        ("client_region_bytes", "region_bytes", "Memory of those buffers."),
        ("client_requests_stuck", "stuck", "Given up, but still at work in a worker's memory."),
    ):
        family = gauge(name, about)
        family.add_metric([], sum(worker.get(field, 0) for worker in workers))
        yield family
    attached = gauge("clients", "Worker processes that are attached.")
    attached.add_metric([], len(workers))
    yield attached
    yield from singles(status, _SINGLES)
