"""The pool: its fill, contents and turnover."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import Metric

from peercached.admin.status import Status
from peercached.metrics.bounded import CLASSES_MAX, grouped
from peercached.metrics.table import Counter, Gauge, labelled, singles

_SINGLES = (
    Gauge("pool_capacity_bytes", "pool.capacity_bytes", "Memory of the pool."),
    Gauge("pool_ready_bytes", "pool.ready_bytes", "Its part that is prepared."),
    Gauge("pool_used_bytes", "pool.used_bytes", "Memory of used slots."),
    Gauge("pool_payload_bytes", "pool.payload_bytes", "Bytes of the pages in the pool."),
    Gauge("pool_keys", "pool.keys", "Pages in the pool."),
    Gauge(
        "pool_adopted_keys",
        "pool.adopted_keys",
        "Pages that came from the pools of other nodes.",
    ),
    Gauge("pool_adopted_bytes", "pool.adopted_bytes", "Bytes of those pages."),
    Gauge(
        "pool_replica_keys",
        "pool.replica_keys",
        "Pages that are copies of other nodes' pages.",
    ),
    Gauge("pool_replica_bytes", "pool.replica_bytes", "Bytes of those pages."),
    Gauge("pool_reserved_pages", "pool.reserved", "Pages being set right now."),
    Gauge("pool_pins", "pool.pins", "Readers that keep pages from eviction right now."),
    Gauge("held_pages", "holds.pages", "Pages kept because `exists` promised them."),
    Gauge("held_bytes", "holds.bytes", "Bytes of these pages."),
    Counter(
        "holds_refused",
        "holds.refused",
        "Promises of `exists` refused because the limit was reached.",
    ),
    Gauge("pinned_pages", "pins.pages", "Pinned pages."),
    Gauge("pinned_bytes", "pins.bytes", "Bytes of pinned pages."),
    Counter("pins_refused", "pins.refused", "Pages not pinned because the limit was reached."),
    Counter("pool_commits", "pool.sets", "Pages that came into the pool."),
    Counter("pool_evictions", "pool.evictions", "Pages evicted to make room."),
    Counter(
        "pool_lost_bytes",
        "pool.lost_bytes",
        "Bytes of evicted pages that no other pool had, as far as known.",
    ),
    Counter(
        "pool_removals",
        "pool.removals",
        "Pages removed, cleared, or set again with another length.",
    ),
    Counter("pool_given", "pool.given", "Pages that moved to the pools of other nodes."),
    Counter("pool_span_moves", "pool.span_moves", "Spans moved between size classes."),
    Counter("pool_no_space", "pool.no_space", "Pages that found no space in the pool."),
)

_CLASS = (
    Gauge("pool_class_slots", "slots", "Slots of a size class (header and page)."),
    Gauge("pool_class_used_slots", "used", "Used slots of a size class."),
    Gauge(
        "pool_class_pinned_slots",
        "pinned",
        "Slots of a size class being read or set right now.",
    ),
    Counter(
        "pool_class_evictions",
        "evictions",
        "Pages evicted from a size class. A class without memory may begin again at 0.",
    ),
)


def families(status: Status) -> Iterator[Metric]:
    yield from singles(status, _SINGLES)
    classes = sorted(
        status.pool.classes, key=lambda one: (-one.slots * one.stride_bytes, one.stride_bytes)
    )
    largest = [str(one.stride_bytes) for one in classes[:CLASSES_MAX]]
    found = grouped(classes, lambda one: str(one.stride_bytes), largest)
    yield from labelled(found, "slot_bytes", _CLASS)
