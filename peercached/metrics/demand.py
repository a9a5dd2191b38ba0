"""What workers looked for and where it was: the value of the cache."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import Metric

from peercached.admin.status import Namespace, Status
from peercached.metrics.bounded import NAMESPACES_MAX
from peercached.metrics.single import Family, Single, counter, singles

_SINGLES = (
    Single(
        "counter",
        "asked_keys",
        lambda s: s.demand.asked,
        "Keys that workers looked for, with `exists`, or with `get` if they never call `exists`.",
    ),
    Single(
        "counter",
        "asked_tokens",
        lambda s: s.demand.tokens_asked,
        "Tokens of those keys, where the worker says how many a key stands for.",
    ),
    Single("counter", "found_tokens", lambda s: s.demand.tokens_found, "Tokens of the keys found."),
)

_NAMESPACE = (
    Family[Namespace](
        "gauge",
        "namespace_pool_pages",
        lambda one: one.pool_pages,
        "Pages in the pool, by namespace.",
    ),
    Family[Namespace](
        "gauge",
        "namespace_pool_bytes",
        lambda one: one.pool_bytes,
        "Memory of the pool's slots that are not free, by namespace.",
    ),
    Family[Namespace](
        "counter",
        "namespace_asked_keys",
        lambda one: one.demand.asked,
        "Keys that workers looked for, by namespace.",
    ),
    Family[Namespace](
        "counter",
        "namespace_found_keys",
        lambda one: one.demand.found_all,
        "Keys that were found, by namespace.",
    ),
)


def families(status: Status) -> Iterator[Metric]:
    found = counter(
        "found_keys",
        "Keys that were found, by where. `exists` finds only keys before the first missing one.",
        ["tier"],
    )
    for tier, count in status.demand.found.items():
        found.add_metric([tier], count)
    yield found
    evicted = counter(
        "evicted_keys",
        "Keys not found that a larger pool would have kept: it would have `pool` times the size.",
        ["pool"],
    )
    for size, count in status.demand.evicted.items():
        evicted.add_metric([size.rstrip("x")], count)
    yield evicted
    yield from singles(status, _SINGLES)

    # By id: the port is open to all, and a name may contain a tenant's salt. There is no sum of the
    # smaller ones: it would jump whenever another namespace is among the largest.
    for line in _NAMESPACE:
        family = line.metric(["namespace_id"])
        for one in status.namespaces[:NAMESPACES_MAX]:
            family.add_metric([one.id], line.number(one))
        yield family
