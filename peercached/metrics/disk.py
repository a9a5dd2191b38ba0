"""The disk tier, if there is one: its fill, speed and errors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from prometheus_client import Metric

from peercached.metrics.single import Single, at, counter, gauge, number, singles

_STATES = ("on", "read_only", "stalled")

_SINGLES = (
    Single("gauge", "disk_size_bytes", "disk.size_bytes", "What the tier may take of the disk."),
    Single("gauge", "disk_used_bytes", "disk.used_bytes", "What it takes."),
    Single("gauge", "disk_segments", "disk.segments", "Segment files."),
    Single("gauge", "disk_keys", "disk.pages", "Pages on the disk."),
    Single("gauge", "disk_payload_bytes", "disk.payload_bytes", "Bytes of those pages."),
    Single("gauge", "disk_index_bytes", "disk.index_bytes", "Memory of the tier's index."),
    Single("gauge", "disk_queued_pages", "disk.queued_pages", "Pages waiting to be written."),
    Single("gauge", "disk_queued_bytes", "disk.queued_bytes", "Bytes waiting to be written."),
    Single("counter", "disk_pages_written", "disk.pages_written", "Pages written."),
    Single(
        "counter",
        "disk_payload_written_bytes",
        "disk.payload_bytes_written",
        "Bytes of pages written. All bytes written over these is the write amplification.",
    ),
    Single("counter", "disk_written_bytes", "disk.disk_bytes_written", "All bytes written."),
    Single(
        "counter", "disk_pages_carried", "disk.pages_carried", "Pages written anew for their use."
    ),
    Single("counter", "disk_pages_read", "disk.pages_read", "Pages read."),
    Single("counter", "disk_payload_read_bytes", "disk.payload_bytes_read", "Bytes of pages read."),
    Single("counter", "disk_read_bytes", "disk.disk_bytes_read", "All bytes read."),
    Single("counter", "disk_reads", "disk.disk_reads", "Reads; neighbours come with one."),
    Single(
        "counter",
        "disk_copied_bytes",
        "disk.copied_bytes_read",
        "Bytes copied from the disk's buffers to where pages were wanted: each page once.",
    ),
    Single("counter", "disk_evictions", "disk.pages_evicted", "Pages evicted with their segment."),
    Single("counter", "disk_segments_evicted", "disk.segments_evicted", "Segments evicted."),
    Single("counter", "disk_removals", "disk.removed", "Pages removed or cleared."),
    Single("counter", "disk_promoted_pages", "disk.promoted", "Pages read back into the pool."),
    Single(
        "counter", "disk_promoted_bytes", "disk.promoted_bytes", "Bytes read back into the pool."
    ),
    Single(
        "counter", "disk_warmed_pages", "disk.warmed", "Pages read back because `exists` asked."
    ),
    Single("counter", "disk_warm_dropped", "disk.warm_dropped", "Of those: dropped at the bound."),
)
# Reason label -> path in the status document.
_SKIPS = {
    "full": "disk.skipped_full",
    "off": "disk.skipped_off",
    "old": "disk.skipped_old",
    "large": "disk.skipped_large",
    "quota": "disk.skipped_quota",
}
_ERRORS = {
    "write": "disk.write_errors",
    "read": "disk.reads_failed",
    "read_late": "disk.reads_late",
    "corrupt": "disk.reads_corrupt",
    "recovery_corrupt": "disk.recovery_corrupt",
    "recovery_rejected": "disk.recovery_rejected",
}
_NOT_PROMOTED = {
    "not_now": "disk.promotes_not_now",
    "late": "disk.promotes_late",
    "failed": "disk.promotes_failed",
    "absent": "disk.promotes_absent",
}


def families(status: Mapping[str, Any]) -> Iterator[Metric]:
    there = bool(at(status, "disk.state"))
    by_state = gauge("disk_state", "1 for the state that the disk tier is in.", ["state"])
    skipped = counter("disk_skipped_pages", "Pages not written, by why not.", ["reason"])
    errors = counter("disk_errors", "Failures of the disk tier, by kind.", ["kind"])
    refused = counter("disk_not_promoted_pages", "Pages not read back, by why not.", ["reason"])
    if there:
        for state in _STATES:
            by_state.add_metric([state], at(status, "disk.state") == state)
        for family, table in ((skipped, _SKIPS), (errors, _ERRORS), (refused, _NOT_PROMOTED)):
            for label, path in table.items():
                family.add_metric([label], number(status, path))
    yield by_state
    for single in singles(status, _SINGLES):
        if not there:
            single.samples = []
        yield single
    yield from (skipped, errors, refused)
