"""The object store, if there is one: its pages, requests and errors."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import Metric

from peercached.admin.status import Status
from peercached.metrics.table import Counter, Gauge, counter, singles

_SINGLES = (
    Gauge("cold_keys", "cold.pages", "Pages that this node knows in the object store."),
    Gauge("cold_payload_bytes", "cold.bytes", "Bytes of these pages."),
    Gauge("cold_objects", "cold.objects", "Objects with these pages."),
    Gauge("cold_removed_keys", "cold.removed_pages", "Pages that the store says are removed."),
    Counter("cold_read_pages", "cold.read_pages", "Pages that came from the store into the pool."),
    Counter("cold_read_page_bytes", "cold.read_page_bytes", "Bytes of these pages."),
    Counter(
        "cold_ahead_pages",
        "cold.ahead_pages",
        "Pages that came only because pages before them were wanted.",
    ),
    Counter("cold_ahead_used_pages", "cold.ahead_used_pages", "Of these, pages used since."),
    Counter("cold_read_bytes", "cold.bytes_read", "All bytes read from the store."),
    Counter("cold_written_pages", "cold.written_pages", "Pages written to the store."),
    Counter("cold_written_bytes", "cold.bytes_written", "All bytes written to the store."),
    Counter("cold_void_pages", "cold.void_pages", "Pages read, but removed meanwhile."),
    Counter("cold_late_pages", "cold.late_pages", "Pages read, but not in time."),
    Counter("cold_corrupt_pages", "cold.corrupt_pages", "Pages with a wrong checksum."),
    Gauge("cold_stored_bytes", "cold.stored_bytes", "Bytes of all objects in the store."),
    Gauge("cold_generation", "cold.generation", "Generation of the store."),
    Gauge("cold_is_sweeper", "cold.is_sweeper", "1 if this node sweeps the store."),
    Counter("cold_deleted_objects", "cold.deleted_objects", "Objects deleted by this node."),
    Counter("cold_deleted_bytes", "cold.deleted_object_bytes", "Bytes of these objects."),
    Counter("cold_deleted_records", "cold.deleted_records", "Records of removals deleted."),
    Counter("cold_compactions", "cold.compactions", "Compactions of a namespace."),
    Counter("cold_rewritten_objects", "cold.rewritten_objects", "Objects rewritten by them."),
    Gauge(
        "cold_other_key_objects", "cold.other_key_objects", "Objects with the seal of another key."
    ),
    Counter("cold_vanished_pages", "cold.vanished_pages", "Pages that had no object any more."),
    Counter(
        "cold_crowded_pages",
        "cold.crowded_pages",
        "Pages not read because too many requests were under way.",
    ),
)


def families(status: Status) -> Iterator[Metric]:
    for family in _families(status):
        if not status.cold.store:
            family.samples.clear()
        yield family


def _families(status: Status) -> Iterator[Metric]:
    yield from singles(status, _SINGLES)
    yield counter(
        "cold_requests", "Requests to the store, by kind.", ["kind"], status.cold.requests
    )
    yield counter("cold_errors", "Failed requests, by kind.", ["kind"], status.cold.errors)
