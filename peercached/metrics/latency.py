"""Latencies as histograms: one bucket per power of two, fewer if there are many series."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

from prometheus_client import Metric
from prometheus_client.core import HistogramMetricFamily

from peercached.metrics.bounded import by_peer
from peercached.observe.latency import Latency

_FINE_US = tuple(1 << power for power in range(2, 25))  # 4 us to 16.8 s
_COARSE_US = _FINE_US[2::2]  # 16 us to 16.8 s, in factors of four

_FAMILIES = (
    (
        "exists",
        "",
        _FINE_US,
        "Time of the engine for `exists` of a batch.",
    ),
    ("get", "source", _FINE_US, "The same for `get`, by the farthest place of its pages."),
    ("set", "", _FINE_US, "The same for `set`, until the owners have the records."),
    (
        "client",
        "op",
        _FINE_US,
        "Time that workers waited for a call, by their clients' clocks.",
    ),
    ("promote", "", _FINE_US, "Time of this node's disk for requested pages."),
    ("peer_read", "peer", _COARSE_US, "Time of a peer for the pages of a batch."),
    ("rail_read", "rail", _COARSE_US, "Time of a rail for up to 2 MiB."),
)


def families(latencies: Iterable[Latency]) -> Iterator[Metric]:
    by_kind: dict[str, list[Latency]] = {}
    for latency in latencies:
        by_kind.setdefault(latency.kind, []).append(latency)
    for kind, label, shown_us, about in _FAMILIES:
        labels = [label] if label else []
        family = HistogramMetricFamily(f"peercached_{kind}_seconds", about, labels=labels)
        for value, group in by_peer(by_kind.get(kind, []), lambda one: one.label).items():
            sum_s = sum(one.sum_s for one in group)
            family.add_metric([value] if label else [], _buckets(group, shown_us), sum_s)
        yield family


def _buckets(group: Sequence[Latency], shown_us: Sequence[int]) -> list[tuple[str, float]]:
    """(le in seconds, cumulative count) of each bucket; the last one is +Inf."""
    so_far = list(accumulate(map(sum, zip(*(one.counts for one in group), strict=True))))
    within = dict(zip(group[0].bounds_us, so_far, strict=False))
    found = [(f"{bound_us / 1e6:.12g}", float(within[bound_us])) for bound_us in shown_us]
    return [*found, ("+Inf", float(so_far[-1]))]
