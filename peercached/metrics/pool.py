"""The pool: its fill, contents and turnover."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from prometheus_client import Metric

from peercached.metrics.bounded import CLASSES_MAX, sums
from peercached.metrics.single import Single, at, counter, gauge, singles

_SINGLES = (
    Single("gauge", "pool_capacity_bytes", "pool.capacity_bytes", "Memory of the pool."),
    Single("gauge", "pool_used_bytes", "pool.used_bytes", "Memory in slots that are not free."),
    Single("gauge", "pool_payload_bytes", "pool.payload_bytes", "Bytes of the pages held."),
    Single("gauge", "pool_keys", "pool.keys", "Pages held."),
    Single("gauge", "pool_reserved_pages", "pool.reserved", "Pages being set right now."),
    Single("gauge", "pool_pins", "pool.pins", "Readers that keep pages from eviction right now."),
    Single("gauge", "held_pages", "holds.pages", "Pages kept for a promise of `exists`."),
    Single("gauge", "held_bytes", "holds.bytes", "Bytes of pages kept for a promise of `exists`."),
    Single(
        "counter", "holds_refused", "holds.refused", "Promises of `exists` refused at their bound."
    ),
    Single("counter", "pool_commits", "pool.sets", "Pages that came into the pool."),
    Single("counter", "pool_evictions", "pool.evictions", "Pages evicted to make room."),
    Single("counter", "pool_removals", "pool.removals", "Pages removed or cleared."),
    Single("counter", "pool_span_moves", "pool.span_moves", "Spans moved between size classes."),
    Single("counter", "pool_no_space", "pool.no_space", "Pages that found no room."),
)

_CLASS = ("slots", "used", "pinned", "evictions")


def families(status: Mapping[str, Any]) -> Iterator[Metric]:
    yield from singles(status, _SINGLES)
    classes = sorted(
        at(status, "pool.classes") or (),
        key=lambda one: (-one["slots"] * one["stride_bytes"], one["stride_bytes"]),
    )
    largest = [str(one["stride_bytes"]) for one in classes[:CLASSES_MAX]]
    label = ["slot_bytes"]
    slots = gauge("pool_class_slots", "Slots of a size class (header and page).", label)
    used = gauge("pool_class_used_slots", "Slots of a size class that are not free.", label)
    pinned = gauge(
        "pool_class_pinned_slots",
        "Slots of a size class that are read or being set right now.",
        label,
    )
    evictions = counter(
        "pool_class_evictions", "Pages evicted, by size class, while it has memory.", label
    )
    for name, row in sums(classes, "stride_bytes", _CLASS, largest).items():
        slots.add_metric([name], row["slots"])
        used.add_metric([name], row["used"])
        pinned.add_metric([name], row["pinned"])
        evictions.add_metric([name], row["evictions"])
    yield from (slots, used, pinned, evictions)
