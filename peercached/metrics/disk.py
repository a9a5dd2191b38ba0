"""The disk tier, if there is one: its fill, speed and errors."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import Metric

from peercached.admin.status import Status
from peercached.metrics.single import Single, counter, gauge, singles

_STATES = ("on", "read_only", "stalled")

_SINGLES = (
    Single(
        "gauge",
        "disk_size_bytes",
        lambda s: s.disk.size_bytes,
        "What the tier may take of the disk.",
    ),
    Single("gauge", "disk_used_bytes", lambda s: s.disk.used_bytes, "What it takes."),
    Single("gauge", "disk_segments", lambda s: s.disk.segments, "Segment files."),
    Single("gauge", "disk_keys", lambda s: s.disk.pages, "Pages on the disk."),
    Single("gauge", "disk_payload_bytes", lambda s: s.disk.payload_bytes, "Bytes of those pages."),
    Single(
        "gauge", "disk_index_bytes", lambda s: s.disk.index_bytes, "Memory of the tier's index."
    ),
    Single(
        "gauge", "disk_queued_pages", lambda s: s.disk.queued_pages, "Pages waiting to be written."
    ),
    Single(
        "gauge", "disk_queued_bytes", lambda s: s.disk.queued_bytes, "Bytes waiting to be written."
    ),
    Single("counter", "disk_pages_written", lambda s: s.disk.pages_written, "Pages written."),
    Single(
        "counter",
        "disk_payload_written_bytes",
        lambda s: s.disk.payload_bytes_written,
        "Bytes of pages written. All bytes written over these is the write amplification.",
    ),
    Single(
        "counter", "disk_written_bytes", lambda s: s.disk.disk_bytes_written, "All bytes written."
    ),
    Single(
        "counter",
        "disk_pages_carried",
        lambda s: s.disk.pages_carried,
        "Pages written anew for their use.",
    ),
    Single("counter", "disk_pages_read", lambda s: s.disk.pages_read, "Pages read."),
    Single(
        "counter",
        "disk_payload_read_bytes",
        lambda s: s.disk.payload_bytes_read,
        "Bytes of pages read.",
    ),
    Single("counter", "disk_read_bytes", lambda s: s.disk.disk_bytes_read, "All bytes read."),
    Single(
        "counter", "disk_reads", lambda s: s.disk.disk_reads, "Reads; neighbours come with one."
    ),
    Single(
        "counter",
        "disk_copied_bytes",
        lambda s: s.disk.copied_bytes_read,
        "Bytes copied from the disk's buffers to where pages were wanted: each page once.",
    ),
    Single(
        "counter",
        "disk_evictions",
        lambda s: s.disk.pages_evicted,
        "Pages evicted with their segment.",
    ),
    Single(
        "counter", "disk_segments_evicted", lambda s: s.disk.segments_evicted, "Segments evicted."
    ),
    Single("counter", "disk_removals", lambda s: s.disk.removed, "Pages removed or cleared."),
    Single(
        "counter",
        "disk_promoted_pages",
        lambda s: s.disk.promoted,
        "Pages read back into the pool.",
    ),
    Single(
        "counter",
        "disk_promoted_bytes",
        lambda s: s.disk.promoted_bytes,
        "Bytes read back into the pool.",
    ),
    Single(
        "counter",
        "disk_warmed_pages",
        lambda s: s.disk.warmed,
        "Pages read back because `exists` asked.",
    ),
    Single(
        "counter",
        "disk_warm_dropped",
        lambda s: s.disk.warm_dropped,
        "Of those: dropped at the bound.",
    ),
)


def families(status: Status) -> Iterator[Metric]:
    disk = status.disk
    by_state = gauge("disk_state", "1 for the state that the disk tier is in.", ["state"])
    skipped = counter("disk_skipped_pages", "Pages not written, by why not.", ["reason"])
    errors = counter("disk_errors", "Failures of the disk tier, by kind.", ["kind"])
    refused = counter("disk_not_promoted_pages", "Pages not read back, by why not.", ["reason"])
    if disk.state:
        for state in _STATES:
            by_state.add_metric([state], disk.state == state)
        skipped.add_metric(["full"], disk.skipped_full)
        skipped.add_metric(["off"], disk.skipped_off)
        skipped.add_metric(["old"], disk.skipped_old)
        skipped.add_metric(["large"], disk.skipped_large)
        skipped.add_metric(["quota"], disk.skipped_quota)
        errors.add_metric(["write"], disk.write_errors)
        errors.add_metric(["read"], disk.reads_failed)
        errors.add_metric(["read_late"], disk.reads_late)
        errors.add_metric(["corrupt"], disk.reads_corrupt)
        errors.add_metric(["recovery_corrupt"], disk.recovery_corrupt)
        errors.add_metric(["recovery_rejected"], disk.recovery_rejected)
        refused.add_metric(["not_now"], disk.promotes_not_now)
        refused.add_metric(["late"], disk.promotes_late)
        refused.add_metric(["failed"], disk.promotes_failed)
        refused.add_metric(["absent"], disk.promotes_absent)
    yield by_state
    for single in singles(status, _SINGLES):
        if not disk.state:
            single.samples = []
        yield single
    yield from (skipped, errors, refused)
