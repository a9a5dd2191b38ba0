"""Refused access at each port, certificate expiry, and namespace quotas."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from prometheus_client import Metric

from peercached.admin.status import Quota, Status
from peercached.metrics.single import Family, Single, counter, gauge, singles

_SINGLES = (
    Single("counter", "tls_reloads", lambda s: s.security.tls_reloads, "New TLS files taken up."),
    Single(
        "gauge",
        "meta_connections",
        lambda s: s.security.meta_connections,
        "Connections to meta_port.",
    ),
)

_QUOTA = (
    Family[Quota](
        "gauge", "namespace_bytes", lambda q: q.bytes, "Of the pool, held by a namespace."
    ),
    Family[Quota]("gauge", "namespace_quota_bytes", lambda q: q.quota_bytes, "What it may hold."),
    Family[Quota](
        "counter", "namespace_quota_evictions", lambda q: q.evictions, "Of its own pages."
    ),
    Family[Quota]("counter", "namespace_quota_refused", lambda q: q.refused, "Pages without room."),
)
_DISK_QUOTA = (
    Family[Quota](
        "gauge",
        "namespace_disk_bytes",
        lambda q: q.disk_bytes,
        "Of the disk, held by a namespace.",
    ),
    Family[Quota](
        "gauge",
        "namespace_disk_quota_bytes",
        lambda q: q.disk_quota_bytes,
        "What it may hold there.",
    ),
    Family[Quota](
        "counter",
        "namespace_disk_quota_skipped",
        lambda q: q.disk_skipped,
        "Its pages that were not written there for the quota's sake.",
    ),
)

_NAMESPACES_MAX = 32


def families(status: Status) -> Iterator[Metric]:
    refused = counter(
        "refused", "Connections and calls turned away, by door and reason.", ("door", "reason")
    )
    security, data_port, socket = status.security, status.tcp_server, status.ipc
    for door, reason, number in (
        ("meta_port", "no_secret", security.refused_handshakes),
        ("meta_port", "wrong_certificate", security.misfit_certificates),
        ("meta_port", "no_session", security.unauthenticated_calls),
        ("meta_port", "nothing_proven", security.meta_shut_unproven),
        ("meta_port", "crowd", security.meta_shut_crowd),
        ("meta_port", "no_call", security.meta_ended_silent),
        ("data_port", "no_token", data_port.unauthorised),
        ("data_port", "late_hello", data_port.late_hellos),
        ("data_port", "crowd", data_port.crowded),
        ("socket", "wrong_user", socket.forbidden),
        ("socket", "late_hello", socket.late_hellos),
        ("socket", "crowd", socket.crowded),
        ("socket", "request_memory", socket.requests_refused),
    ):
        refused.add_metric([door, reason], number)
    yield refused
    yield from singles(status, _SINGLES)
    left = gauge("tls_remaining_seconds", "Until the first end of a certificate in use.")
    if security.tls:
        left.add_metric([], security.tls_seconds_left)
    yield left
    # The fullest quotas first. Beyond _NAMESPACES_MAX, only `status --json` has them.
    fullest = sorted(
        status.quotas, key=lambda q: (q.bytes / max(q.quota_bytes, 1), q.bytes), reverse=True
    )
    yield from _by_namespace(_QUOTA, fullest)
    fullest = sorted(
        (one for one in status.quotas if one.disk_quota_bytes),
        key=lambda q: (q.disk_bytes / q.disk_quota_bytes, q.disk_bytes),
        reverse=True,
    )
    yield from _by_namespace(_DISK_QUOTA, fullest)


def _by_namespace(table: Sequence[Family[Quota]], quotas: Sequence[Quota]) -> Iterator[Metric]:
    for line in table:
        family = line.metric(["namespace"])
        for quota in quotas[:_NAMESPACES_MAX]:
            family.add_metric([quota.namespace], line.number(quota))
        yield family
