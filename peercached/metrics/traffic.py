"""The requests of this host's workers, and their results."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import Metric

from peercached.admin.status import Status
from peercached.metrics.table import Counter, Gauge, counter, singles

_SINGLES = (
    Counter("set_held_pages", "operations.set_held", "Pages set that were already here."),
    Counter(
        "stale_retries",
        "operations.stale_retries",
        "Pages looked up again because the first READ was stale or failed, or the recorded length "
        "was wrong.",
    ),
    Counter(
        "used_elsewhere_pages",
        "operations.used_elsewhere",
        "Pages here that peers reported as used, at most once a second and peer.",
    ),
    Counter(
        "cut_pages",
        "operations.cut_pages",
        "Pages that were found and computed instead, because loading them would have taken longer.",
    ),
    Counter(
        "given_up_pages",
        "operations.given_up_pages",
        "Pages not loaded after all, because the load took far longer than forecast.",
    ),
    Counter("location_cache_hits", "locations.hits", "Lookups answered by the location cache."),
    Counter(
        "location_cache_misses", "locations.misses", "Lookups not answered by the location cache."
    ),
    Gauge("location_cache_capacity", "locations.entries_max", "Locations that fit in the cache."),
)


def families(status: Status) -> Iterator[Metric]:
    ipc, operations = status.ipc, status.operations
    yield counter(
        "requests",
        "Requests (batches) of this host's workers.",
        ["operation"],
        {"set": ipc.sets, "get": ipc.gets, "exists": ipc.exists, "other": ipc.others},
    )
    pages = {"set": operations.set, "get": operations.get}
    yield counter(
        "pages",
        "Pages set or got, by outcome.",
        ["operation", "outcome"],
        {(name, outcome): n for name, outcomes in pages.items() for outcome, n in outcomes.items()},
    )
    yield counter(
        "bytes",
        "Bytes of pages set and got, without pages that were already here.",
        ["operation"],
        {"set": operations.bytes_set, "get": operations.bytes_got},
    )
    yield counter("hits", "Pages that a get delivered, by tier.", ["tier"], operations.hits)
    yield counter(
        "misses",
        "Pages that a get did not deliver, by reason.",
        ["reason"],
        {reason: count for reason, count in operations.get.items() if reason != "ok"},
    )
    yield counter(
        "corrupt_pages",
        "Pages with a wrong checksum, not served.",
        ["where"],
        {"pool": operations.corrupt_local, "peer": operations.corrupt_remote},
    )
    yield from singles(status, _SINGLES)
