"""Clusters for tests: real daemons, small pools, short heartbeats."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from harness.fixtures import FAST, Attach, MakeCluster, add_logs, attaching, cluster_maker
from harness.netns import Network, reason_to_skip

from peercached.demo.cluster import Cluster

START_S = 30.0


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Iterator[None]:
    report: Any = yield
    add_logs(report)
    return report


@pytest.fixture
def make_cluster() -> Iterator[MakeCluster]:
    """`make_cluster(3, pool_size="8MiB")`: started, complete, gone after the test."""
    with ExitStack() as stack:
        yield cluster_maker(stack, FAST, START_S)


@pytest.fixture(scope="module")
def three_nodes() -> Iterator[Cluster]:
    """One cluster for all tests of a file that do it no harm."""
    with ExitStack() as stack:
        yield cluster_maker(stack, FAST, START_S)(3)


@pytest.fixture
def attach() -> Iterator[Attach]:
    """`attach(daemon, page_bytes=...)`: a worker's pages on that daemon."""
    with attaching() as attach:
        yield attach


@pytest.fixture
def network() -> Iterator[Network]:
    """Hosts a, b and c with networks of their own."""
    if reason := reason_to_skip():
        pytest.skip(reason)
    made = Network("abc")
    yield made
    made.remove()
