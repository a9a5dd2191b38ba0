"""Sums of the outcomes of many jobs."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from demo.worker import Outcome


def percentile(values: Sequence[float], fraction: float) -> float:
    """By nearest rank; NaN if there are no values."""
    if not values:
        return math.nan
    return sorted(values)[max(0, math.ceil(fraction * len(values)) - 1)]


@dataclass
class Tally:
    """The summed outcomes of a group of jobs."""

    jobs: int = 0
    asked_pages: int = 0
    promised_pages: int = 0
    hit_pages: int = 0
    set_pages: int = 0
    got_bytes: int = 0
    set_bytes: int = 0
    missed: Counter[str] = field(default_factory=Counter)
    unset: Counter[str] = field(default_factory=Counter)
    exists_s: list[float] = field(default_factory=list)
    get_s: list[float] = field(default_factory=list)
    set_s: list[float] = field(default_factory=list)
    wrong_pages: int = 0
    wrong: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def add(self, outcome: Outcome) -> None:
        self.jobs += 1
        if outcome.error:
            self.errors.append(outcome.error)
        self._add_common(outcome)

    def __iadd__(self, other: "Tally") -> "Tally":
        self.jobs += other.jobs
        self.errors += other.errors
        self._add_common(other)
        return self

    def _add_common(self, other: "Outcome | Tally") -> None:
        self.asked_pages += other.asked_pages
        self.promised_pages += other.promised_pages
        self.hit_pages += other.hit_pages
        self.set_pages += other.set_pages
        self.got_bytes += other.got_bytes
        self.set_bytes += other.set_bytes
        self.missed.update(other.missed)
        self.unset.update(other.unset)
        self.exists_s += other.exists_s
        self.get_s += other.get_s
        self.set_s += other.set_s
        self.wrong_pages += other.wrong_pages
        self.wrong += other.wrong

    @property
    def hit_rate(self) -> float:
        return self.hit_pages / self.asked_pages if self.asked_pages else math.nan
