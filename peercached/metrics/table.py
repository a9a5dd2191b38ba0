"""Families, and tables of families that each read one number of the status document, or of a part
of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, TypeVar

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

# By the value of the label (text), or by a tuple with the values of several.
Numbers = Mapping[Any, float]
_Family = TypeVar("_Family", CounterMetricFamily, GaugeMetricFamily)


def counter(name: str, about: str, labels: Sequence[str], numbers: Numbers) -> Metric:
    """The family `peercached_<name>_total`."""
    return _filled(CounterMetricFamily(f"peercached_{name}", about, labels=labels), numbers)


def gauge(name: str, about: str, labels: Sequence[str], numbers: Numbers) -> Metric:
    return _filled(GaugeMetricFamily(f"peercached_{name}", about, labels=labels), numbers)


def _filled(family: _Family, numbers: Numbers) -> _Family:
    for values, number in numbers.items():
        family.add_metric([values] if isinstance(values, str) else values, number)
    return family


@dataclass(frozen=True)
class Gauge:
    """A line of a table. `name` is without the prefix `peercached_`. `number`: its place in the
    document, such as `pool.keys`, or a function of the document."""

    name: str
    number: str | Callable[[Any], float]
    about: str
    make = staticmethod(gauge)

    def of(self, document: object) -> float:
        number = self.number
        return float((attrgetter(number) if isinstance(number, str) else number)(document))

    def family(self, labels: Sequence[str], numbers: Numbers) -> Metric:
        return self.make(self.name, self.about, labels, numbers)


class Counter(Gauge):
    """`name` is also without the ending `_total`."""

    make = staticmethod(counter)


def singles(document: object, table: Sequence[Gauge]) -> Iterator[Metric]:
    """One family without labels for each line of the table."""
    for line in table:
        yield line.family([], {(): line.of(document)})


def labelled(
    groups: Mapping[str, Sequence[Any]], label: str, table: Sequence[Gauge]
) -> Iterator[Metric]:
    """One family for each line of the table, with the sum over each group. `groups`: parts of the
    document, by the value of the label."""
    for line in table:
        yield line.family(
            [label], {name: sum(map(line.of, group)) for name, group in groups.items()}
        )
