"""Tests the files in deploy/ against real daemons."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from harness.fixtures import FAST, attach, cluster_fixture, cluster_maker, pytest_runtest_makereport
from harness.scrape import scrape

__all__ = ["attach", "make_cluster", "pytest_runtest_makereport"]
make_cluster = cluster_fixture(FAST, 30.0)


@pytest.fixture(scope="session")
def scraped() -> Iterator[str]:
    """One daemon's answer to `GET /metrics`."""
    with ExitStack() as stack:
        yield scrape(cluster_maker(stack, FAST, 30.0)(1)[0])
