"""Hints of routers and engines, and the doors for routers."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import Metric

from peercached.admin.status import HintCount, Status
from peercached.metrics.table import Counter, Gauge, Numbers, counter, singles

_SINGLES = (
    Gauge("hinted_pages", "hints.unused_pages", "Pages that hints brought and nobody used yet."),
    Gauge("hinted_bytes", "hints.unused_bytes", "Bytes of these pages."),
    Gauge("retained_pages", "hints.retained_pages", "Pages that hints retain."),
    Gauge("retained_bytes", "hints.retained_bytes", "Bytes of these pages."),
    Gauge("hint_bytes_max", "hints.bytes_max", "Bound of either, by `hint_share`."),
    Gauge("hints_waiting", "hints.waiting", "Actions of hints that wait for their turn."),
    Counter("hints_malformed", "hints.malformed", "Envelopes of hints that were refused."),
    Gauge("router_connections", "routers.connections", "Connections to `router_port`."),
)


def families(status: Status) -> Iterator[Metric]:
    labels = ["action", "outcome"]
    yield counter(
        "hints_answered",
        "Actions of hints, by the answer to their sender. Those with `accepted` may still have "
        "waited for their turn then.",
        labels,
        _by_outcome(status.hints.answered),
    )
    yield counter(
        "hints_ended",
        "Actions of hints that waited for their turn, by their outcome.",
        labels,
        _by_outcome(status.hints.ended),
    )
    yield counter(
        "hint_bytes", "Bytes of pages that hints brought.", ["action"], status.hints.bytes
    )
    yield from singles(status, _SINGLES)


def _by_outcome(counts: list[HintCount]) -> Numbers:
    return {(one.action, one.outcome): one.count for one in counts}
