"""Refused access at each port, certificate expiry, and namespace quotas."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from prometheus_client import Metric

from peercached.metrics.single import Single, at, counter, gauge, singles

# (port, reason, path in the status document) of each kind of refusal.
_REFUSALS = (
    ("meta_port", "no_secret", "security.refused_handshakes"),
    ("meta_port", "wrong_certificate", "security.misfit_certificates"),
    ("meta_port", "no_session", "security.unauthenticated_calls"),
    ("meta_port", "slow_handshake", "security.slow_handshakes"),
    ("meta_port", "crowd_of_handshakes", "security.crowded_handshakes"),
    ("meta_port", "nothing_proven", "security.meta_shut_unproven"),
    ("meta_port", "crowd", "security.meta_shut_crowd"),
    ("meta_port", "no_call", "security.meta_ended_silent"),
    ("data_port", "no_token", "tcp_server.unauthorised"),
    ("data_port", "late_hello", "tcp_server.late_hellos"),
    ("data_port", "crowd", "tcp_server.crowded"),
    ("socket", "wrong_user", "ipc.forbidden"),
    ("socket", "late_hello", "ipc.late_hellos"),
    ("socket", "crowd", "ipc.crowded"),
    ("socket", "request_memory", "ipc.requests_refused"),
)

_SINGLES = (
    Single("counter", "tls_reloads", "security.tls_reloads", "New TLS files taken up."),
    Single(
        "gauge",
        "meta_connections",
        "security.meta_connections",
        "Connections to meta_port.",
    ),
)

_NAMESPACES_MAX = 32


def families(status: Mapping[str, Any]) -> Iterator[Metric]:
    refused = counter(
        "refused", "Connections and calls turned away, by door and reason.", ("door", "reason")
    )
    for door, reason, path in _REFUSALS:
        refused.add_metric([door, reason], float(at(status, path) or 0))
    yield refused
    yield from singles(status, _SINGLES)
    left = gauge("tls_remaining_seconds", "Until the first end of a certificate in use.")
    if at(status, "security.tls"):
        left.add_metric([], float(at(status, "security.tls_seconds_left") or 0))
    yield left
    yield from _quotas(status)


def _quotas(status: Mapping[str, Any]) -> Iterator[Metric]:
    """The fullest quotas first. Beyond _NAMESPACES_MAX, only `status --json` has them."""
    quotas = sorted(
        status.get("quotas", ()),
        key=lambda one: (one["bytes"] / max(one["quota_bytes"], 1), one["bytes"]),
        reverse=True,
    )[:_NAMESPACES_MAX]
    for family, field in (
        (gauge("namespace_bytes", "Of the pool, held by a namespace.", ("namespace",)), "bytes"),
        (gauge("namespace_quota_bytes", "What it may hold.", ("namespace",)), "quota_bytes"),
        (
            counter("namespace_quota_evictions", "Of its own pages.", ("namespace",)),
            "evictions",
        ),
        (
            counter("namespace_quota_refused", "Pages without room.", ("namespace",)),
            "refused",
        ),
    ):
        for one in quotas:
            family.add_metric([one["namespace"]], float(one.get(field, 0)))
        yield family
    yield from _disk_quotas(status)


def _disk_quotas(status: Mapping[str, Any]) -> Iterator[Metric]:
    """Namespaces with a disk quota, the fullest first."""
    quotas = sorted(
        (one for one in status.get("quotas", ()) if one.get("disk_quota_bytes")),
        key=lambda one: (one["disk_bytes"] / one["disk_quota_bytes"], one["disk_bytes"]),
        reverse=True,
    )[:_NAMESPACES_MAX]
    for family, field in (
        (
            gauge("namespace_disk_bytes", "Of the disk, held by a namespace.", ("namespace",)),
            "disk_bytes",
        ),
        (
            gauge("namespace_disk_quota_bytes", "What it may hold there.", ("namespace",)),
            "disk_quota_bytes",
        ),
        (
            counter(
                "namespace_disk_quota_skipped",
                "Its pages that were not written there for the quota's sake.",
                ("namespace",),
            ),
            "disk_skipped",
        ),
    ):
        for one in quotas:
            family.add_metric([one["namespace"]], float(one[field]))
        yield family
