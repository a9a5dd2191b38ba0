"""Unfinished removals, and those that could not be written to the journal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from prometheus_client import Metric

from peercached.metrics.single import Single, singles

_SINGLES = (
    Single(
        "gauge",
        "removals_running_pages",
        "removals.running",
        "Pages that are being removed somewhere in the cluster, and cannot be set.",
    ),
    Single(
        "gauge",
        "removals_unsure_pages",
        "removals.unsure",
        "Of those that this node removes, pages that some process may still have.",
    ),
    Single(
        "gauge",
        "removals_unsure_seconds",
        "removals.unsure_s",
        "Since when the oldest of those is being removed.",
    ),
    Single(
        "gauge",
        "removals_vouches",
        "removals.vouches",
        "Whether this node knows of all removals; if not, it holds pages of an earlier start back.",
    ),
    Single(
        "gauge",
        "removals_unwritten",
        "removals.waiting",
        "Removals that a restart may undo: they could not be written down.",
    ),
)


def families(status: Mapping[str, Any]) -> Iterator[Metric]:
    yield from singles(status, _SINGLES)
