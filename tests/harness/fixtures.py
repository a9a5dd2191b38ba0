"""Clusters of real daemons: fixtures and a hook that several conftests share.

pytest uses them only where a conftest imports them."""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import pytest

from harness import nursery
from harness.clock import PACE, seconds
from harness.cluster import WORKERS, Cluster
from harness.netns import Network, reason_to_skip
from harness.paced import Options, paced
from peercache_bench.daemons import Spawn
from peercached.membership.timing import Timing

MakeCluster = Callable[..., Cluster]

# The cluster notices a death within a second or two, so that tests need not wait long. Without
# replicas, a steady reader goes on to ask other nodes.
FAST: Options = {
    "heartbeat-interval-s": 0.25,
    "member-ttl-s": 1.5,
    "rpc-timeout-ms": 1000,
    "pool-size": "64MiB",
    "directory-capacity": 100_000,
    "replica-share": 0,
}
# The membership timing of a cluster with these options.
TIMING = Timing(seconds(0.25), seconds(1.5))

_live_clusters: list[Cluster] = []


def cluster_maker(
    stack: ExitStack, defaults: Options, start_s: float, spawn: Spawn = nursery.spawn
) -> MakeCluster:
    """`make(3, pool_size="8MiB")`: a started and complete cluster, which ends with the stack.
    `each`: more options per daemon, in order. Times in options are those of the reference machine
    (harness.clock)."""

    def make(
        size: int = 3,
        *,
        start: bool = True,
        each: Sequence[Options] = (),
        **options: str | int | float,
    ) -> Cluster:
        made = Cluster(
            size,
            options=_at_our_pace({**defaults, **options}),
            each=[_at_our_pace(one) for one in each],
            spawn=spawn,
            patience=PACE,
        )
        cluster = stack.enter_context(made)
        stack.callback(WORKERS.close)
        _live_clusters.append(cluster)
        stack.callback(_live_clusters.remove, cluster)
        if start:
            cluster.start(start_s)
        return cluster

    return make


def _at_our_pace(options: Options) -> dict[str, str | int | float]:
    """Scales times to this machine. The result has names as on the command line."""
    return paced({name.replace("_", "-"): value for name, value in options.items()})


def cluster_fixture(defaults: Options, start_s: float) -> Any:
    """The fixture `make_cluster`: cluster_maker()'s `make`. Its clusters end with the test."""

    @pytest.fixture(name="make_cluster")
    def fixture() -> Iterator[MakeCluster]:
        with ExitStack() as stack:
            yield cluster_maker(stack, defaults, start_s)

    return fixture


@pytest.fixture
def make_hosts(make_cluster: MakeCluster) -> Iterator[MakeCluster]:
    """Like `make_cluster`, with each daemon on a host of its own if the machine allows it."""
    with ExitStack() as stack:

        def make(size: int = 3, *, start: bool = True, **options: Any) -> Cluster:
            if reason_to_skip():
                return make_cluster(size, start=start, **options)
            cluster = make_cluster(size, start=False, **options)
            network = Network([daemon.node_id for daemon in cluster.daemons])
            stack.callback(network.remove)
            for daemon in cluster.daemons:
                stack.callback(daemon.clean_up)
            network.place(cluster)
            if start:
                cluster.start()
            return cluster

        yield make


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown() -> Generator[None, None, None]:
    """Closes the test's workers of daemons that go on."""
    try:
        yield
    finally:
        WORKERS.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, Any, Any]:
    """Adds the ends of the daemons' logs to the report of a failed test."""
    report: Any = yield
    if report.failed:
        for cluster in _live_clusters:
            report.sections.append(("daemons", cluster.logs()))
    return report
