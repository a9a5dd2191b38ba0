"""Tables of families: each reads one number of the status document, or of a part of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from peercached.admin.status import Status

T = TypeVar("T")


@dataclass(frozen=True)
class Family(Generic[T]):
    """`name` without the prefix `peercached_` and a counter's `_total`."""

    kind: Literal["counter", "gauge"]
    name: str
    number: Callable[[T], float]
    about: str

    def metric(self, labels: Sequence[str] = ()) -> CounterMetricFamily | GaugeMetricFamily:
        """The family without samples."""
        return (counter if self.kind == "counter" else gauge)(self.name, self.about, labels)


Single = Family[Status]


def singles(status: Status, table: Sequence[Single]) -> Iterator[Metric]:
    """One family for each entry of the table, in order."""
    for line in table:
        made = line.metric()
        made.add_metric([], float(line.number(status)))
        yield made


def counter(name: str, about: str, labels: Sequence[str] = ()) -> CounterMetricFamily:
    """The family `peercached_<name>_total`. Add samples with add_metric(label values, number)."""
    return CounterMetricFamily(f"peercached_{name}", about, labels=list(labels))


def gauge(name: str, about: str, labels: Sequence[str] = ()) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"peercached_{name}", about, labels=list(labels))
