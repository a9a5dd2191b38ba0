"""Latencies as histograms: one bucket per power of two, fewer if there are many series."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

from prometheus_client import Metric
from prometheus_client.core import HistogramMetricFamily

from peercached.metrics.bounded import OTHERS, PEERS_MAX
from peercached.observe.latency import Latency

_FINE_US = tuple(1 << power for power in range(2, 25))  # 4 us to 16.8 s
_COARSE_US = _FINE_US[2::2]  # 16 us to 16.8 s, in factors of four

_FAMILIES = (
    ("exists", "exists", "", _FINE_US, "How long `exists` of a batch takes."),
    ("get", "get", "source", _FINE_US, "How long a get takes, by its farthest page's place."),
    ("set", "set", "", _FINE_US, "How long a set takes, until the owners have the records."),
    ("promote", "promote", "", _FINE_US, "How long this node's disk takes for pages asked for."),
    ("lookup_rpc", "lookup_rpc", "", _FINE_US, "How long an owner takes to answer a lookup."),
    ("peer_read", "peer_read", "peer", _COARSE_US, "How long a peer takes for a batch's pages."),
    ("rail_read", "rail_read", "rail", _COARSE_US, "How long a rail takes for up to 2 MiB."),
)


def families(latencies: Iterable[Latency]) -> Iterator[Metric]:
    by_kind: dict[str, list[Latency]] = {}
    for latency in latencies:
        by_kind.setdefault(latency.kind, []).append(latency)
    for kind, name, label, shown_us, about in _FAMILIES:
        labels = [label] if label else []
        family = HistogramMetricFamily(f"peercached_{name}_seconds", about, labels=labels)
        for one in _bounded(by_kind.get(kind, [])):
            family.add_metric([one.label] if label else [], buckets(one, shown_us), one.sum_s)
        yield family


def buckets(latency: Latency, shown_us: Sequence[int]) -> list[tuple[str, float]]:
    """(le in seconds, cumulative count) of each bucket; the last one is +Inf."""
    so_far = list(accumulate(latency.counts))
    within = dict(zip(latency.bounds_us, so_far, strict=False))
    found = [(f"{bound_us / 1e6:.12g}", float(within[bound_us])) for bound_us in shown_us]
    return [*found, ("+Inf", float(so_far[-1]))]


def _bounded(same_kind: list[Latency]) -> list[Latency]:
    """The first PEERS_MAX by label, and one sum of the others."""
    kept = sorted(same_kind, key=lambda latency: latency.label)
    rest = kept[PEERS_MAX:]
    if not rest:
        return kept
    others = Latency(
        rest[0].kind,
        OTHERS,
        sum(latency.sum_s for latency in rest),
        rest[0].bounds_us,
        list(map(sum, zip(*(latency.counts for latency in rest), strict=True))),
    )
    return [*kept[:PEERS_MAX], others]
