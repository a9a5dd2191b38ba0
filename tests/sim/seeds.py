"""The seeds of a story, and the runs that take them."""

from __future__ import annotations

import pytest


def some(quick: int, all_of_them: int) -> list[object]:
    """A few seeds in every run, all in `make test-slow`. `make sim-stories` runs more."""
    later = [pytest.param(seed, marks=pytest.mark.slow) for seed in range(quick, all_of_them)]
    return [*range(quick), *later]
