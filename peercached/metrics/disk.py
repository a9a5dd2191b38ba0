"""The disk tier, if there is one: its fill, speed and errors."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import Metric

from peercached.admin.status import Status
from peercached.metrics.table import Counter, Gauge, counter, gauge, singles

_STATES = ("on", "read_only", "stalled")

_SINGLES = (
    Gauge("disk_size_bytes", "disk.size_bytes", "Limit of the disk tier."),
    Gauge("disk_used_bytes", "disk.used_bytes", "Disk space in use."),
    Gauge("disk_segments", "disk.segments", "Segment files."),
    Gauge("disk_keys", "disk.pages", "Pages on the disk."),
    Gauge("disk_payload_bytes", "disk.payload_bytes", "Bytes of the pages on the disk."),
    Gauge("disk_index_bytes", "disk.index_bytes", "Memory of the tier's index."),
    Gauge("disk_queued_pages", "disk.queued_pages", "Pages waiting to be written."),
    Gauge("disk_queued_bytes", "disk.queued_bytes", "Bytes waiting to be written."),
    Counter("disk_pages_written", "disk.pages_written", "Pages written."),
    Counter(
        "disk_payload_written_bytes",
        "disk.payload_bytes_written",
        "Bytes of pages written. All bytes written divided by these: write amplification.",
    ),
    Counter("disk_written_bytes", "disk.disk_bytes_written", "All bytes written."),
    Counter(
        "disk_pages_carried",
        "disk.pages_carried",
        "Pages written again because they were used.",
    ),
    Counter("disk_pages_read", "disk.pages_read", "Pages read."),
    Counter("disk_payload_read_bytes", "disk.payload_bytes_read", "Bytes of pages read."),
    Counter("disk_read_bytes", "disk.disk_bytes_read", "All bytes read."),
    Counter("disk_reads", "disk.disk_reads", "Read calls; one can bring neighbouring pages."),
    Counter(
        "disk_copied_bytes",
        "disk.copied_bytes_read",
        "Bytes copied from the disk's buffers, each page once.",
    ),
    Counter("disk_evictions", "disk.pages_evicted", "Pages evicted with their segment."),
    Counter("disk_segments_evicted", "disk.segments_evicted", "Segments evicted."),
    Counter("disk_removals", "disk.removed", "Pages removed or cleared."),
    Counter("disk_promoted_pages", "disk.promoted", "Pages read back into the pool."),
    Counter("disk_promoted_bytes", "disk.promoted_bytes", "Bytes read back into the pool."),
    Counter("disk_warmed_pages", "disk.warmed", "Pages read back for `exists`."),
    Counter(
        "disk_warm_dropped",
        "disk.warm_dropped",
        "Pages not read back for `exists` because the queue was full.",
    ),
)


def families(status: Status) -> Iterator[Metric]:
    for family in _families(status):
        if not status.disk.state:
            family.samples = []
        yield family


def _families(status: Status) -> Iterator[Metric]:
    disk = status.disk
    yield gauge(
        "disk_state",
        "1 for the present state of the disk tier.",
        ["state"],
        {state: disk.state == state for state in _STATES},
    )
    yield from singles(status, _SINGLES)
    yield counter(
        "disk_skipped_pages",
        "Pages not written, by reason.",
        ["reason"],
        {
            "full": disk.skipped_full,
            "off": disk.skipped_off,
            "old": disk.skipped_old,
            "large": disk.skipped_large,
            "quota": disk.skipped_quota,
        },
    )
    yield counter(
        "disk_errors",
        "Failures of the disk tier, by kind.",
        ["kind"],
        {
            "write": disk.write_errors,
            "read": disk.reads_failed,
            "read_late": disk.reads_late,
            "corrupt": disk.reads_corrupt,
            "recovery_corrupt": disk.recovery_corrupt,
            "recovery_rejected": disk.recovery_rejected,
        },
    )
    yield counter(
        "disk_not_promoted_pages",
        "Pages not read back, by reason.",
        ["reason"],
        {
            "not_now": disk.promotes_not_now,
            "late": disk.promotes_late,
            "failed": disk.promotes_failed,
            "absent": disk.promotes_absent,
        },
    )
