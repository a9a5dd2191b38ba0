"""The requests of this host's workers, and their results."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import Metric

from peercached.admin.status import Status
from peercached.metrics.table import Counter, Gauge, counter, singles

_SINGLES = (
    Counter("set_held_pages", "operations.set_held", "Pages set that were here already."),
    Counter(
        "stale_retries",
        "operations.stale_retries",
        "Pages looked up once more because their first READ was stale or failed, or what was known "
        "of them had another length.",
    ),
    Counter(
        "used_elsewhere_pages",
        "operations.used_elsewhere",
        "Pages here that peers said they use; each at most once a second and peer.",
    ),
    Counter("location_cache_hits", "locations.hits", "Lookups the location cache knew."),
    Counter("location_cache_misses", "locations.misses", "Lookups it did not know."),
    Gauge("location_cache_capacity", "locations.entries_max", "Locations that it may hold."),
)


def families(status: Status) -> Iterator[Metric]:
    ipc, operations = status.ipc, status.operations
    yield counter(
        "requests",
        "Requests of this host's workers (batches).",
        ["operation"],
        {"set": ipc.sets, "get": ipc.gets, "exists": ipc.exists, "other": ipc.others},
    )
    pages = {"set": operations.set, "get": operations.get}
    yield counter(
        "pages",
        "Pages asked for, by what became of them.",
        ["operation", "outcome"],
        {(name, outcome): n for name, outcomes in pages.items() for outcome, n in outcomes.items()},
    )
    yield counter(
        "bytes",
        "Bytes of pages set (those held already do not count) and got.",
        ["operation"],
        {"set": operations.bytes_set, "get": operations.bytes_got},
    )
    yield counter(
        "hits", "Pages that a get delivered, by where they were.", ["tier"], operations.hits
    )
    yield counter(
        "misses",
        "Pages that a get did not deliver, by why not.",
        ["reason"],
        {reason: count for reason, count in operations.get.items() if reason != "ok"},
    )
    yield counter(
        "corrupt_pages",
        "Pages whose bytes did not have their checksum, never served.",
        ["where"],
        {"pool": operations.corrupt_local, "peer": operations.corrupt_remote},
    )
    yield from singles(status, _SINGLES)
