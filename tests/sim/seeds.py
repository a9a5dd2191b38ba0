"""The seeds of a story, and the runs that take them."""

from __future__ import annotations

from collections.abc import Iterable

import pytest


def some(quick: int, all_of_them: int) -> list[object]:
    """A few seeds in every run, all in `make test-slow`. `make sim-stories` runs more."""
    return [*range(quick), *slow(range(quick, all_of_them))]


def slow(seeds: Iterable[int]) -> list[object]:
    return [pytest.param(seed, marks=pytest.mark.slow) for seed in seeds]
