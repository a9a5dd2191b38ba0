"""Clusters of real daemons for tests: what the conftests of tests/cluster and tests/rdma share.

Fixtures, and the hook, count where a conftest imports them."""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import pytest

from harness import nursery
from harness.clock import PACE, seconds
from harness.netns import Network, reason_to_skip
from harness.paced import Options, paced
from harness.pages import Pages
from peercached.demo.cluster import Cluster, Daemon
from peercached.membership.timing import Timing

MakeCluster = Callable[..., Cluster]
Attach = Callable[..., Pages]

# Deaths are noticed within a second or two, so that tests need not wait for long.
FAST: Options = {
    "heartbeat-interval-s": 0.25,
    "member-ttl-s": 1.5,
    "rpc-timeout-ms": 1000,
    "pool-size": "64MiB",
    "directory-capacity": 100_000,
}
# What follows for the membership of such a cluster.
TIMING = Timing(seconds(0.25), seconds(1.5))

_live_clusters: list[Cluster] = []


def cluster_maker(stack: ExitStack, defaults: Options, start_s: float) -> MakeCluster:
    """`make(3, pool_size="8MiB")`: started and complete, gone with the stack. `each`: further
    options of the single daemons, in order. Times among the options are those of the reference
    machine (harness.clock)."""

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
            spawn=nursery.spawn,
            patience=PACE,
        )
        cluster = stack.enter_context(made)
        _live_clusters.append(cluster)
        stack.callback(_live_clusters.remove, cluster)
        if start:
            cluster.start(start_s)
        return cluster

    return make


def _at_our_pace(options: Options) -> dict[str, str | int | float]:
    """Spelled as on the command line."""
    return paced({name.replace("_", "-"): value for name, value in options.items()})


def cluster_fixture(defaults: Options, start_s: float) -> Any:
    """The fixture `make_cluster`: cluster_maker()'s `make`; what it made is gone after the test."""

    @pytest.fixture(name="make_cluster")
    def fixture() -> Iterator[MakeCluster]:
        with ExitStack() as stack:
            yield cluster_maker(stack, defaults, start_s)

    return fixture


@pytest.fixture
def make_hosts(make_cluster: MakeCluster) -> Iterator[MakeCluster]:
    """Like `make_cluster`, with each daemon on a host of its own, where the machine can do that."""
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


@pytest.fixture
def attach() -> Iterator[Attach]:
    """`attach(daemon, page_bytes=...)`: a worker's pages on that daemon. `timeout_s` is of the
    reference machine."""
    with ExitStack() as stack:

        def made(daemon: Daemon, **options: Any) -> Pages:
            if "timeout_s" in options:
                options["timeout_s"] = seconds(options["timeout_s"])
            return stack.enter_context(Pages(daemon.socket_path, **options))

        yield made


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, Any, Any]:
    """A failed test shows how the logs of its daemons end."""
    report: Any = yield
    if report.failed:
        for cluster in _live_clusters:
            report.sections.append(("daemons", cluster.logs()))
    return report
