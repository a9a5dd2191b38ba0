"""Tests with a GPU: `make test-gpu`. Without NVIDIA's driver, fake_cuda.c plays it. With a driver
but no GPU they are skipped, with the reason."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import IO

import pytest
from harness.cluster import Cluster, Daemon
from harness.fixtures import (
    FAST,
    MakeCluster,
    cluster_maker,
    pytest_runtest_makereport,
    pytest_runtest_teardown,
)

from gpu import fake_driver
from gpu.cuda import Gpu, GpuMemory, NoGpu
from gpu.worker import Worker
from peercache_bench.daemons import Process, exec_command
from peercache_client import Client

__all__ = ["pytest_runtest_makereport", "pytest_runtest_teardown"]

Connect = Callable[[Daemon], Client]


@pytest.fixture(scope="session")
def gpu() -> Gpu:
    try:
        fake_driver.environment()
        return Gpu()
    except (NoGpu, OSError) as reason:
        pytest.skip(f"no GPU: {reason}")


@pytest.fixture(scope="session")
def memory(gpu: Gpu) -> Callable[[int], GpuMemory]:
    """Allocates on the GPU."""
    return partial(GpuMemory, gpu)


def _spawn(command: Sequence[str], log: IO[bytes], environment: Mapping[str, str]) -> Process:
    return exec_command(command, log, {**environment, **fake_driver.environment()})


def _maker(stack: ExitStack) -> MakeCluster:
    return cluster_maker(stack, {**FAST, "gpu": "cuda"}, 60.0, _spawn)


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
