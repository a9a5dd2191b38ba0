"""Clusters for tests: real daemons, small pools, short heartbeats."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from harness.fixtures import FAST, Attach, MakeCluster
from harness.netns import Network, reason_to_skip
from harness.pages import Pages

from peercached.demo.cluster import Cluster, Daemon

_live_clusters: list[Cluster] = []


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """A failed test shows how the logs of its daemons end."""
    report: Any = yield
    if report.failed:
        for cluster in _live_clusters:
            report.sections.append(("daemons", cluster.logs()))
    return report


def _cluster_maker(stack: ExitStack) -> MakeCluster:
    def make(size: int = 3, *, start: bool = True, **options: str | int | float) -> Cluster:
        given = {name.replace("_", "-"): value for name, value in options.items()}
        cluster = stack.enter_context(Cluster(size, options={**FAST, **given}))
        _live_clusters.append(cluster)
        stack.callback(_live_clusters.remove, cluster)
        if start:
            cluster.start()
        return cluster

    return make


@pytest.fixture
def make_cluster() -> Iterator[MakeCluster]:
    """`make_cluster(3, pool_size="8MiB")`: started, complete, gone after the test."""
    with ExitStack() as stack:
        yield _cluster_maker(stack)


@pytest.fixture(scope="module")
def three_nodes() -> Iterator[Cluster]:
    """One cluster for all tests of a file that do it no harm."""
    with ExitStack() as stack:
        yield _cluster_maker(stack)(3)


@pytest.fixture
def attach() -> Iterator[Attach]:
    """`attach(daemon, page_bytes=...)`: a worker's pages on that daemon."""
    with ExitStack() as stack:

        def make(daemon: Daemon, **options: Any) -> Pages:
            return stack.enter_context(Pages(daemon.socket_path, **options))

        yield make


@pytest.fixture
def network() -> Iterator[Network]:
    """Hosts a, b and c with networks of their own."""
    if reason := reason_to_skip():
        pytest.skip(reason)
    made = Network("abc")
    yield made
    made.remove()
