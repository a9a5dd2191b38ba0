"""The workers of this host."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import Metric

from peercached.admin.status import Status
from peercached.metrics.table import Counter, Gauge, singles

_SINGLES = (
    Gauge(
        "client_regions",
        lambda s: sum(worker.regions for worker in s.workers),
        "Buffers that workers share with the daemon.",
    ),
    Gauge(
        "client_region_bytes",
        lambda s: sum(worker.region_bytes for worker in s.workers),
        "Memory of those buffers.",
    ),
    Gauge(
        "client_requests_stuck",
        lambda s: sum(worker.stuck for worker in s.workers),
        "Requests given up by a worker while the daemon still uses its memory.",
    ),
    Gauge("clients", lambda s: len(s.workers), "Attached worker processes."),
    Gauge("client_connections", "ipc.connections", "Connections of workers."),
    Counter("client_connects", "ipc.accepted", "Connections of workers accepted."),
    Counter("client_refused", "ipc.refused", "Connections of workers refused."),
    Counter("client_bad_frames", "ipc.bad_frames", "Malformed frames from workers."),
    Counter(
        "client_regions_lost",
        "ipc.regions_lost",
        "Buffers dropped because the worker truncated their memory.",
    ),
    Counter(
        "client_requests_given_up",
        "ipc.given_up",
        "Requests that their worker gave up.",
    ),
    Counter(
        "events_dropped",
        "operations.control.events_dropped",
        "Requests dropped because the control plane did not keep up.",
    ),
)


def families(status: Status) -> Iterator[Metric]:
    yield from singles(status, _SINGLES)
