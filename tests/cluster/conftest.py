"""Cluster fixtures: real daemons, small pools, short heartbeats."""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from harness import etcd as real_etcd
from harness.cluster import Cluster, Daemon
from harness.engine import Engine
from harness.fixtures import (
    FAST,
    MakeCluster,
    cluster_fixture,
    cluster_maker,
    make_hosts,
    pytest_runtest_makereport,
    pytest_runtest_teardown,
)
from harness.netns import Network, reason_to_skip
from harness.s3 import S3, s3_server
from harness.versions import Versions
from harness.warm_pools import TMPFS, PoolFiles, some_pool_files

START_S = 30.0

__all__ = ["make_cluster", "make_hosts", "pytest_runtest_makereport", "pytest_runtest_teardown"]
make_cluster = cluster_fixture(FAST, START_S)


@pytest.fixture(scope="module")
def three_nodes() -> Iterator[Cluster]:
    """One cluster for all tests of a file that do no harm to it. Its TTL is long, because no test
    waits for a death, and a busy machine must not look dead."""
    with ExitStack() as stack:
        make = cluster_maker(stack, FAST, START_S)
        yield make(3, member_ttl_s=15, rpc_timeout_ms=5000)


@pytest.fixture
def s3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3]:
    with s3_server(tmp_path) as server:
        for name, value in server.environment().items():
            monkeypatch.setenv(name, value)
        yield server


@pytest.fixture
def pool_files() -> Iterator[PoolFiles]:
    if not os.access(TMPFS, os.W_OK):
        pytest.skip(f"{TMPFS} is not a tmpfs that we may write to")
    with some_pool_files() as files:
        yield files


@pytest.fixture
def worker() -> Iterator[Callable[..., Versions]]:
    with ExitStack() as stack:

        def at(daemon: Daemon, **options: Any) -> Versions:
            return stack.enter_context(Versions(daemon.socket_path, **options))

        yield at


@pytest.fixture
def engine() -> Iterator[Callable[..., Engine]]:
    """`engine(daemon, tp_rank=1, ...)` makes a registered engine, which is closed after the
    test."""
    with ExitStack() as stack:

        def make(daemon: Daemon, **options: Any) -> Engine:
            return stack.enter_context(Engine(daemon.socket_path, **options)).register()

        yield make


@pytest.fixture
def network() -> Iterator[Network]:
    """Hosts a, b and c in separate network namespaces."""
    yield from _network("abc")


@pytest.fixture
def on_hosts(network: Network, make_cluster: MakeCluster) -> Iterator[MakeCluster]:
    """`on_hosts(pool_size="8MiB")`: three daemons, each on its own host."""
    with ExitStack() as stack:

        def make(**options: Any) -> Cluster:
            cluster = make_cluster(3, start=False, **options)
            for daemon in cluster.daemons:
                stack.callback(daemon.clean_up)
            network.start(cluster)
            return cluster

        yield make


@pytest.fixture
def hosts(on_hosts: MakeCluster) -> Cluster:
    return on_hosts()


@pytest.fixture
def network_of_five() -> Iterator[Network]:
    """Hosts a to e in separate network namespaces."""
    yield from _network("abcde")


def _network(hosts: str) -> Iterator[Network]:
    if reason := reason_to_skip():
        pytest.skip(reason)
    made = Network(hosts)
    yield made
    made.remove()


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[real_etcd.Etcd]:
    """A real etcd with one member."""
    if reason := real_etcd.reason_to_skip():
        pytest.skip(reason)
    made = real_etcd.Etcd(tmp_path)
    made.start()
    yield made
    made.kill()
