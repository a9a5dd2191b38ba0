"""The pool: its fill, contents and turnover."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import Metric

from peercached.admin.status import PoolClass, Status
from peercached.metrics.bounded import CLASSES_MAX, sums
from peercached.metrics.single import Family, Single, singles

_SINGLES = (
    Single("gauge", "pool_capacity_bytes", lambda s: s.pool.capacity_bytes, "Memory of the pool."),
    Single(
        "gauge",
        "pool_used_bytes",
        lambda s: s.pool.used_bytes,
        "Memory in slots that are not free.",
    ),
    Single(
        "gauge", "pool_payload_bytes", lambda s: s.pool.payload_bytes, "Bytes of the pages held."
    ),
    Single("gauge", "pool_keys", lambda s: s.pool.keys, "Pages held."),
    Single(
        "gauge",
        "pool_adopted_keys",
        lambda s: s.pool.adopted_keys,
        "Of the pages held, those that came from the pools of other nodes.",
    ),
    Single("gauge", "pool_adopted_bytes", lambda s: s.pool.adopted_bytes, "Bytes of those pages."),
    Single(
        "gauge",
        "pool_replica_keys",
        lambda s: s.pool.replica_keys,
        "Of the pages held, copies of pages that other nodes keep.",
    ),
    Single("gauge", "pool_replica_bytes", lambda s: s.pool.replica_bytes, "Bytes of those pages."),
    Single("gauge", "pool_reserved_pages", lambda s: s.pool.reserved, "Pages being set right now."),
    Single(
        "gauge",
        "pool_pins",
        lambda s: s.pool.pins,
        "Readers that keep pages from eviction right now.",
    ),
    Single("gauge", "held_pages", lambda s: s.holds.pages, "Pages kept for a promise of `exists`."),
    Single(
        "gauge",
        "held_bytes",
        lambda s: s.holds.bytes,
        "Bytes of pages kept for a promise of `exists`.",
    ),
    Single(
        "counter",
        "holds_refused",
        lambda s: s.holds.refused,
        "Promises of `exists` refused at their bound.",
    ),
    Single("gauge", "pinned_pages", lambda s: s.pins.pages, "Pages that somebody has pinned."),
    Single("gauge", "pinned_bytes", lambda s: s.pins.bytes, "Bytes of pinned pages."),
    Single("counter", "pins_refused", lambda s: s.pins.refused, "Pages that no pin had room for."),
    Single("counter", "pool_commits", lambda s: s.pool.sets, "Pages that came into the pool."),
    Single("counter", "pool_evictions", lambda s: s.pool.evictions, "Pages evicted to make room."),
    Single("counter", "pool_removals", lambda s: s.pool.removals, "Pages removed or cleared."),
    Single(
        "counter",
        "pool_span_moves",
        lambda s: s.pool.span_moves,
        "Spans moved between size classes.",
    ),
    Single("counter", "pool_no_space", lambda s: s.pool.no_space, "Pages that found no room."),
)

_CLASS = (
    Family[PoolClass](
        "gauge",
        "pool_class_slots",
        lambda one: one.slots,
        "Slots of a size class (header and page).",
    ),
    Family[PoolClass](
        "gauge",
        "pool_class_used_slots",
        lambda one: one.used,
        "Slots of a size class that are not free.",
    ),
    Family[PoolClass](
        "gauge",
        "pool_class_pinned_slots",
        lambda one: one.pinned,
        "Slots of a size class that are read or being set right now.",
    ),
    Family[PoolClass](
        "counter",
        "pool_class_evictions",
        lambda one: one.evictions,
        "Pages evicted, by size class, while it has memory.",
    ),
)


def families(status: Status) -> Iterator[Metric]:
    yield from singles(status, _SINGLES)
    classes = sorted(
        status.pool.classes, key=lambda one: (-one.slots * one.stride_bytes, one.stride_bytes)
    )
    largest = [str(one.stride_bytes) for one in classes[:CLASSES_MAX]]
    numbers = (line.number for line in _CLASS)
    found = sums(classes, lambda one: str(one.stride_bytes), largest, *numbers)
    for place, line in enumerate(_CLASS):
        family = line.metric(["slot_bytes"])
        for name, row in found.items():
            family.add_metric([name], row[place])
        yield family
