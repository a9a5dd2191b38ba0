"""The requests of this host's workers, and their results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from prometheus_client import Metric

from peercached.admin.status import HITS_BY_TIER
from peercached.metrics.single import Single, at, counter, number, singles

_REQUESTS = {"set": "ipc.sets", "get": "ipc.gets", "exists": "ipc.exists", "other": "ipc.others"}

_SINGLES = (
    Single("counter", "exists_keys", "operations.exists_keys", "Keys asked for by `exists`."),
    Single("counter", "exists_hits", "operations.exists_hits", "Keys that `exists` found."),
    Single("counter", "set_held_pages", "operations.set_held", "Pages set that were here already."),
    Single(
        "counter",
        "stale_retries",
        "operations.stale_retries",
        "Pages looked up once more because their first READ was stale or failed, or what was known "
        "of them had another length.",
    ),
    Single(
        "counter",
        "used_elsewhere_pages",
        "operations.used_elsewhere",
        "Pages here that peers said they use; each at most once a second and peer.",
    ),
    Single("counter", "location_cache_hits", "locations.hits", "Lookups the location cache knew."),
    Single("counter", "location_cache_misses", "locations.misses", "Lookups it did not know."),
    Single(
        "gauge", "location_cache_capacity", "locations.entries_max", "Locations that it may hold."
    ),
)


def families(status: Mapping[str, Any]) -> Iterator[Metric]:
    requests = counter("requests", "Requests of this host's workers (batches).", ["operation"])
    for operation, path in _REQUESTS.items():
        requests.add_metric([operation], number(status, path))
    yield requests

    outcomes = {
        operation: dict(at(status, f"operations.{operation}") or {}) for operation in ("set", "get")
    }
    pages = counter("pages", "Pages asked for, by what became of them.", ["operation", "outcome"])
    for operation, counts in outcomes.items():
        for outcome, count in counts.items():
            pages.add_metric([operation, outcome], count)
    yield pages

    moved = counter(
        "bytes", "Bytes of pages set (those held already do not count) and got.", ["operation"]
    )
    moved.add_metric(["set"], number(status, "operations.bytes_set"))
    moved.add_metric(["get"], number(status, "operations.bytes_got"))
    yield moved

    hits = counter("hits", "Pages that a get delivered, by where they were.", ["tier"])
    for tier, name in HITS_BY_TIER.items():
        hits.add_metric([tier], number(status, f"operations.{name}"))
    yield hits
    misses = counter("misses", "Pages that a get did not deliver, by why not.", ["reason"])
    for reason, count in outcomes["get"].items():
        if reason != "ok":
            misses.add_metric([reason], count)
    yield misses

    corrupt = counter(
        "corrupt_pages", "Pages whose bytes did not have their checksum, never served.", ["where"]
    )
    corrupt.add_metric(["pool"], number(status, "operations.corrupt_local"))
    corrupt.add_metric(["peer"], number(status, "operations.corrupt_remote"))
    yield corrupt
    yield from singles(status, _SINGLES)
