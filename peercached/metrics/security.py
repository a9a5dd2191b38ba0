"""Who knocked in vain, and how long the certificates last."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from prometheus_client import Metric

from peercached.metrics.single import Single, at, counter, gauge, number, singles

# Calls and handshakes of peers that were refused, by why.
_HANDSHAKES = {
    "secret": "security.refused_handshakes",
    "certificate": "security.misfit_certificates",
    "slow": "security.slow_handshakes",
    "crowd": "security.crowded_handshakes",
}
# Connections to meta_port that were shut, by why.
_SHUT = {
    "unproven": "security.meta_shut_unproven",
    "crowd": "security.meta_shut_crowd",
    "tls": "security.meta_ended_silent",
}

_SINGLES = (
    Single(
        "counter",
        "unauthenticated_calls",
        "security.unauthenticated_calls",
        "Calls of peers without a session.",
    ),
    Single(
        "counter",
        "malformed_calls",
        "operations.control.malformed_calls",
        "Calls of peers that made no sense.",
    ),
    Single("gauge", "meta_connections", "security.meta_connections", "Connections to `meta_port`."),
    Single(
        "gauge",
        "meta_connections_unproven",
        "security.meta_connections_unproven",
        "Those of them that have proved nothing yet.",
    ),
    Single("counter", "tls_reloads", "security.tls_reloads", "New certificates taken up."),
)


def families(status: Mapping[str, Any]) -> Iterator[Metric]:
    refused = counter("handshakes_refused", "Handshakes of peers refused, by why.", ["reason"])
    for reason, path in _HANDSHAKES.items():
        refused.add_metric([reason], number(status, path))
    yield refused
    shut = counter("meta_connections_shut", "Connections to `meta_port` shut, by why.", ["reason"])
    for reason, path in _SHUT.items():
        shut.add_metric([reason], number(status, path))
    yield shut
    left = gauge("tls_remaining_seconds", "Until the first certificate in use ends; with TLS only.")
    if at(status, "security.tls"):
        left.add_metric([], number(status, "security.tls_seconds_left"))
    yield left
    yield from singles(status, _SINGLES)
