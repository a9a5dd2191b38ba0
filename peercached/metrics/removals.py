"""Unfinished removals, and those that could not be written to the journal."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import Metric

from peercached.admin.status import Status
from peercached.metrics.single import Single, singles

_SINGLES = (
    Single(
        "gauge",
        "removals_running_pages",
        lambda s: s.removals.running,
        "Pages that are being removed somewhere in the cluster, and cannot be set.",
    ),
    Single(
        "gauge",
        "removals_unsure_pages",
        lambda s: s.removals.unsure,
        "Of those that this node removes, pages that some process may still have.",
    ),
    Single(
        "gauge",
        "removals_unsure_seconds",
        lambda s: s.removals.unsure_s,
        "Since when the oldest of those is being removed.",
    ),
    Single(
        "gauge",
        "removals_owes",
        lambda s: s.removals.owes,
        "Whether this node may have missed removals; then it serves no page of before.",
    ),
    Single(
        "gauge",
        "removals_unwritten",
        lambda s: s.removals.waiting,
        "Removals that a restart may undo: they could not be written down.",
    ),
)


def families(status: Status) -> Iterator[Metric]:
    yield from singles(status, _SINGLES)
