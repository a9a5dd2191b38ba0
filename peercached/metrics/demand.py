"""The pages that workers looked for, and their places: the value of the cache."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import Metric

from peercached.admin.status import Status
from peercached.metrics.bounded import NAMESPACES_MAX
from peercached.metrics.table import Counter, Gauge, counter, labelled, singles

_SINGLES = (
    Counter(
        "asked_keys",
        "demand.asked",
        "Keys that workers looked for with `exists`, or with `get` if they never call `exists`.",
    ),
    Counter(
        "asked_tokens",
        "demand.tokens_asked",
        "Tokens of these keys, if the worker tells them.",
    ),
    Counter("found_tokens", "demand.tokens_found", "Tokens of the keys found."),
)

_NAMESPACE = (
    Gauge("namespace_pool_pages", "pool_pages", "Pages of a namespace in the pool."),
    Gauge(
        "namespace_pool_bytes",
        "pool_bytes",
        "Pool memory that a namespace uses.",
    ),
    Counter("namespace_asked_keys", "demand.asked", "Keys that workers looked for in a namespace."),
    Counter("namespace_found_keys", "demand.found_all", "Keys found in a namespace."),
    Counter(
        "namespace_compared_keys",
        "keys_compared",
        "Pages set in a namespace while a node had the same key (of this node's own, one in 17).",
    ),
    Counter("namespace_differed_keys", "keys_differed", "Of these, pages with other bytes."),
)


def families(status: Status) -> Iterator[Metric]:
    demand = status.demand
    yield counter(
        "found_keys",
        "Keys found, by tier. `exists` counts only keys before the first missing one.",
        ["tier"],
        demand.found,
    )
    yield counter(
        "evicted_keys",
        "Missing keys that a larger pool (`pool` times the size) would have kept.",
        ["pool"],
        {size.rstrip("x"): count for size, count in demand.evicted.items()},
    )
    yield from singles(status, _SINGLES)
    # By id: the port is open to all, and a name may contain a tenant's salt. There is no sum of the
    # smaller ones: it would jump whenever another namespace is among the largest.
    largest = {one.id: [one] for one in status.namespaces[:NAMESPACES_MAX]}
    yield from labelled(largest, "namespace_id", _NAMESPACE)
