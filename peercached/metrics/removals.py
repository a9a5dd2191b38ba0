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
        "Pages that some node is removing: they cannot be set.",
    ),
    Gauge(
        "removals_unsure_pages",
        "removals.unsure",
        "Pages of this node's removals that some process may still have.",
    ),
    Gauge(
        "removals_unsure_seconds",
        "removals.unsure_s",
        "Age of the oldest of these removals.",
    ),
    Gauge(
        "removals_owes",
        "removals.owes",
        "1 if this node may have missed removals: it serves no older pages then.",
    ),
    Gauge(
        "removals_unwritten",
        "removals.waiting",
        "Removals missing in the journal: a restart may undo them.",
    ),
)


def families(status: Status) -> Iterator[Metric]:
    yield from singles(status, _SINGLES)
