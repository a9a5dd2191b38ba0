"""The workers of this host."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import Metric

from peercached.admin.status import Status
from peercached.metrics.single import Single, singles

_SINGLES = (
    Single(
        "gauge",
        "client_regions",
        lambda s: sum(worker.regions for worker in s.workers),
        "Buffers that workers share with the daemon.",
    ),
    Single(
        "gauge",
        "client_region_bytes",
        lambda s: sum(worker.region_bytes for worker in s.workers),
        "Memory of those buffers.",
    ),
    Single(
        "gauge",
        "client_requests_stuck",
        lambda s: sum(worker.stuck for worker in s.workers),
        "Given up, but still at work in a worker's memory.",
    ),
    Single("gauge", "clients", lambda s: len(s.workers), "Worker processes that are attached."),
    Single("gauge", "client_connections", lambda s: s.ipc.connections, "Connections of workers."),
    Single(
        "counter", "client_connects", lambda s: s.ipc.accepted, "Connections of workers accepted."
    ),
    Single("counter", "client_refused", lambda s: s.ipc.refused, "Connections of workers refused."),
    Single(
        "counter", "client_bad_frames", lambda s: s.ipc.bad_frames, "Frames that made no sense."
    ),
    Single(
        "counter",
        "client_regions_lost",
        lambda s: s.ipc.regions_lost,
        "Regions dropped because their worker cut the memory short.",
    ),
    Single(
        "counter",
        "client_requests_given_up",
        lambda s: s.ipc.given_up,
        "Requests that their worker did not wait for to the end.",
    ),
    Single(
        "counter",
        "events_dropped",
        lambda s: s.operations.control.events_dropped,
        "Requests dropped because the control plane did not keep up.",
    ),
)


def families(status: Status) -> Iterator[Metric]:
    yield from singles(status, _SINGLES)
