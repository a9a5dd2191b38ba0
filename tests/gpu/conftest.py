"""Tests with a GPU: `make test-gpu`. Without NVIDIA's driver, fake_cuda.c plays it. With a driver
but no GPU they are skipped, with the reason."""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial

import pytest
from harness.cluster import Cluster, Daemon
from harness.fixtures import (
    FAST,
    MakeCluster,
    cluster_maker,
    pytest_runtest_makereport,
    pytest_runtest_teardown,
)

from gpu import driver
from gpu.cuda import Gpu, GpuMemory, NoGpu
from gpu.worker import Worker
from peercache_client import Client

__all__ = ["pytest_runtest_makereport", "pytest_runtest_teardown"]

Connect = Callable[[Daemon], Client]


@pytest.fixture(scope="session")
def gpu() -> Gpu:
    try:
        driver.environment()
        return Gpu()
    except (NoGpu, OSError) as reason:
        text = f"no GPU: {reason}"
        if "PEERCACHED_REAL_GPU" in os.environ:
            pytest.fail(text)
        pytest.skip(text)


@pytest.fixture(scope="session")
def memory(gpu: Gpu) -> Callable[[int], GpuMemory]:
    """Allocates on the GPU."""
    return partial(GpuMemory, gpu)


def _maker(stack: ExitStack) -> MakeCluster:
    return cluster_maker(stack, {**FAST, "gpu": "cuda"}, 60.0, driver.spawn)


@pytest.fixture
def make_cluster(gpu: Gpu) -> Iterator[MakeCluster]:
    with ExitStack() as stack:
        yield _maker(stack)


@pytest.fixture(scope="module")
def nodes(gpu: Gpu) -> Iterator[Cluster]:
    """Two daemons with room for all pages of a file's tests."""
    with ExitStack() as stack:
        yield _maker(stack)(2, pool_size="1GiB")


@pytest.fixture
def connect() -> Iterator[Connect]:
    """`connect(daemon)`: a client, which is closed after the test."""
    with ExitStack() as stack:

        def to(daemon: Daemon) -> Client:
            return stack.enter_context(Client(daemon.socket_path, "gpu", timeout_s=20))

        yield to


@pytest.fixture
def work(gpu: Gpu) -> Iterator[Callable[[Daemon, str], Worker]]:
    """`work(daemon, role)`: another process (worker.py) on the same GPU."""
    with ExitStack() as stack:

        def start(daemon: Daemon, role: str) -> Worker:
            return stack.enter_context(Worker(daemon.socket_path, role))

        yield start
