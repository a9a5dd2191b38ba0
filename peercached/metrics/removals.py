"""Unfinished removals, and those that could not be written to the journal."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import Metric

from peercached.admin.status import Status
from peercached.metrics.table import Gauge, singles

_SINGLES = (
    Gauge(
        "removals_running_pages",
        "removals.running",
        "Pages that are being removed somewhere in the cluster, and cannot be set.",
    ),
    Gauge(
        "removals_unsure_pages",
        "removals.unsure",
        "Of those that this node removes, pages that some process may still have.",
    ),
    Gauge(
        "removals_unsure_seconds",
        "removals.unsure_s",
        "Since when the oldest of those is being removed.",
    ),
    Gauge(
        "removals_owes",
        "removals.owes",
        "Whether this node may have missed removals; then it serves no page of before.",
    ),
    Gauge(
        "removals_unwritten",
        "removals.waiting",
        "Removals that a restart may undo: they could not be written down.",
    ),
)


def families(status: Status) -> Iterator[Metric]:
    yield from singles(status, _SINGLES)
