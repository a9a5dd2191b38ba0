"""Families that are one number of the status document each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily


@dataclass(frozen=True)
class Single:
    """`name` without the prefix `peercached_` and a counter's `_total`. `path`: place in the status
    document, with dots; a missing value counts as 0."""

    kind: Literal["counter", "gauge"]
    name: str
    path: str
    about: str


def at(status: Mapping[str, Any], path: str) -> Any:
    """The value at `path`; None if it is missing."""
    found: Any = status
    for name in path.split("."):
        if not isinstance(found, Mapping) or name not in found:
            return None
        found = found[name]
    return found


def number(status: Mapping[str, Any], path: str) -> float:
    """The value at `path` as a number; 0 if it is missing."""
    return float(at(status, path) or 0)


def singles(status: Mapping[str, Any], table: Sequence[Single]) -> Iterator[Metric]:
    """One family for each entry of the table, in order."""
    for line in table:
        family = counter if line.kind == "counter" else gauge
        made = family(line.name, line.about)
        made.add_metric([], number(status, line.path))
        yield made


def counter(name: str, about: str, labels: Sequence[str] = ()) -> CounterMetricFamily:
    """The family `peercached_<name>_total`. Add samples with add_metric(label values, number)."""
    return CounterMetricFamily(f"peercached_{name}", about, labels=list(labels))


def gauge(name: str, about: str, labels: Sequence[str] = ()) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"peercached_{name}", about, labels=list(labels))
