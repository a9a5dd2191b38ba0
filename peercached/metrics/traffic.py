"""The requests of this host's workers, and their results."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import Metric

from peercached.admin.status import Status
from peercached.metrics.single import Single, counter, singles

_SINGLES = (
    Single(
        "counter",
        "set_held_pages",
        lambda s: s.operations.set_held,
        "Pages set that were here already.",
    ),
    Single(
        "counter",
        "stale_retries",
        lambda s: s.operations.stale_retries,
        "Pages looked up once more because their first READ was stale or failed, or what was known "
        "of them had another length.",
    ),
    Single(
        "counter",
        "used_elsewhere_pages",
        lambda s: s.operations.used_elsewhere,
        "Pages here that peers said they use; each at most once a second and peer.",
    ),
    Single(
        "counter",
        "location_cache_hits",
        lambda s: s.locations.hits,
        "Lookups the location cache knew.",
    ),
    Single(
        "counter", "location_cache_misses", lambda s: s.locations.misses, "Lookups it did not know."
    ),
    Single(
        "gauge",
        "location_cache_capacity",
        lambda s: s.locations.entries_max,
        "Locations that it may hold.",
    ),
)


def families(status: Status) -> Iterator[Metric]:
    requests = counter("requests", "Requests of this host's workers (batches).", ["operation"])
    ipc, operations = status.ipc, status.operations
    for operation, number in (
        ("set", ipc.sets),
        ("get", ipc.gets),
        ("exists", ipc.exists),
        ("other", ipc.others),
    ):
        requests.add_metric([operation], number)
    yield requests

    pages = counter("pages", "Pages asked for, by what became of them.", ["operation", "outcome"])
    for operation, counts in (("set", operations.set), ("get", operations.get)):
        for outcome, count in counts.items():
            pages.add_metric([operation, outcome], count)
    yield pages

    moved = counter(
        "bytes", "Bytes of pages set (those held already do not count) and got.", ["operation"]
    )
    moved.add_metric(["set"], operations.bytes_set)
    moved.add_metric(["get"], operations.bytes_got)
    yield moved

    hits = counter("hits", "Pages that a get delivered, by where they were.", ["tier"])
    for tier, count in operations.hits.items():
        hits.add_metric([tier], count)
    yield hits
    misses = counter("misses", "Pages that a get did not deliver, by why not.", ["reason"])
    for reason, count in operations.get.items():
        if reason != "ok":
            misses.add_metric([reason], count)
    yield misses

    corrupt = counter(
        "corrupt_pages", "Pages whose bytes did not have their checksum, never served.", ["where"]
    )
    corrupt.add_metric(["pool"], operations.corrupt_local)
    corrupt.add_metric(["peer"], operations.corrupt_remote)
    yield corrupt
    yield from singles(status, _SINGLES)
