"""Tests the files in deploy/ against real daemons."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from harness.fixtures import (
    FAST,
    cluster_fixture,
    cluster_maker,
    pytest_runtest_makereport,
    pytest_runtest_teardown,
)
from harness.helm import Helm, reason_to_skip
from harness.scrape import scrape

__all__ = ["make_cluster", "pytest_runtest_makereport", "pytest_runtest_teardown"]
make_cluster = cluster_fixture(FAST, 30.0)


@pytest.fixture(scope="session")
def scraped() -> Iterator[str]:
    """One daemon's answer to `GET /metrics`."""
    with ExitStack() as stack:
        yield scrape(cluster_maker(stack, FAST, 30.0)(1)[0])


@pytest.fixture
def helm(tmp_path: Path) -> Helm:
    return Helm(tmp_path)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skips what needs Helm where there is none. As marks, because pytest sums these up."""
    if reason := reason_to_skip():
        for item in items:
            if "helm" in getattr(item, "fixturenames", ()):
                item.add_marker(pytest.mark.skip(reason=reason))
