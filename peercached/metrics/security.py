"""Refused access at each port, certificate expiry, and namespace quotas."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from prometheus_client import Metric

from peercached.admin.status import Quota, Status
from peercached.metrics.table import Counter, Gauge, counter, gauge, labelled, singles

_SINGLES = (
    Counter("tls_reloads", "security.tls_reloads", "Times that new TLS files were loaded."),
    Gauge("meta_connections", "security.meta_connections", "Connections to `meta_port`."),
)

_QUOTA = (
    Gauge("namespace_bytes", "bytes", "Pool memory of a namespace with a quota."),
    Gauge("namespace_quota_bytes", "quota_bytes", "Pool quota of this namespace."),
    Counter(
        "namespace_quota_evictions",
        "evictions",
        "Its pages evicted because of the quota.",
    ),
    Counter("namespace_quota_refused", "refused", "Pages refused because the quota left no room."),
)
_DISK_QUOTA = (
    Gauge("namespace_disk_bytes", "disk_bytes", "Disk space of a namespace with a disk quota."),
    Gauge("namespace_disk_quota_bytes", "disk_quota_bytes", "Disk quota of this namespace."),
    Counter(
        "namespace_disk_quota_skipped",
        "disk_skipped",
        "Pages not written because of this quota.",
    ),
)

_NAMESPACES_MAX = 32


def families(status: Status) -> Iterator[Metric]:
    security, data_port, socket = status.security, status.tcp_server, status.ipc
    yield counter(
        "refused",
        "Connections and calls refused, by door and reason.",
        ["door", "reason"],
        {
            ("meta_port", "no_secret"): security.refused_handshakes,
            ("meta_port", "wrong_certificate"): security.misfit_certificates,
            ("meta_port", "no_session"): security.unauthenticated_calls,
            ("meta_port", "nothing_proven"): security.meta_shut_unproven,
            ("meta_port", "crowd"): security.meta_shut_crowd,
            ("meta_port", "no_call"): security.meta_ended_silent,
            ("data_port", "no_token"): data_port.unauthorised,
            ("data_port", "late_hello"): data_port.late_hellos,
            ("data_port", "crowd"): data_port.crowded,
            ("router_port", "no_token"): status.routers.unauthenticated,
            ("router_port", "no_call"): status.routers.shut,
            ("socket", "wrong_user"): socket.forbidden,
            ("socket", "late_hello"): socket.late_hellos,
            ("socket", "crowd"): socket.crowded,
            ("socket", "request_memory"): socket.requests_refused,
        },
    )
    yield from singles(status, _SINGLES)
    yield gauge(
        "tls_remaining_seconds",
        "Time until the first certificate in use expires.",
        [],
        {(): security.tls_seconds_left} if security.tls else {},
    )
    # The fullest quotas first. Beyond _NAMESPACES_MAX, only `status --json` has them.
    fullest = sorted(
        status.quotas, key=lambda q: (q.bytes / max(q.quota_bytes, 1), q.bytes), reverse=True
    )
    yield from _by_namespace(fullest, _QUOTA)
    fullest = sorted(
        (one for one in status.quotas if one.disk_quota_bytes),
        key=lambda q: (q.disk_bytes / q.disk_quota_bytes, q.disk_bytes),
        reverse=True,
    )
    yield from _by_namespace(fullest, _DISK_QUOTA)


def _by_namespace(quotas: Sequence[Quota], table: Sequence[Gauge]) -> Iterator[Metric]:
    """By id, as in demand.py: a name may contain a tenant's salt."""
    first = {quota.id: [quota] for quota in quotas[:_NAMESPACES_MAX]}
    yield from labelled(first, "namespace_id", table)
