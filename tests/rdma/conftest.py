"""These tests run inside the machine that tests/rdma/vm makes: `make test-rdma`.

Elsewhere pytest does not collect them.
"""

import os
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from harness import debian_pyverbs
from harness.cluster import Cluster
from harness.fixtures import (
    cluster_fixture,
    cluster_maker,
    pytest_runtest_makereport,
    pytest_runtest_teardown,
)
from harness.paced import Options

if "RDMA_VM" in os.environ:
    debian_pyverbs.make_importable()
else:
    collect_ignore_glob = ["test_*.py"]

# All daemons may share one processor, and it may be busy with other work for ten seconds.
CALM: Options = {
    "heartbeat-interval-s": 1,
    "member-ttl-s": 30,
    "rpc-timeout-ms": 10_000,
    "publish-timeout-ms": 10_000,
    "pool-size": "64MiB",
    "directory-capacity": 100_000,
    "protocol": "rdma",
    "replica-share": 0,  # a reader goes on to ask its peers
}
START_S = 120.0  # stretched by PACE

__all__ = ["make_cluster", "pytest_runtest_makereport", "pytest_runtest_teardown"]
make_cluster = cluster_fixture(CALM, START_S)


@pytest.fixture(scope="module")
def mixed() -> Iterator[Cluster]:
    """One cluster for all tests of a file that do it no harm: a and b have two rails each, c has
    none. It ends with the file, because tests for leaks need the devices for one daemon each."""
    with ExitStack() as stack:
        yield cluster_maker(stack, CALM, START_S)(
            3,
            pool_size="192MiB",
            each=[
                {"device_names": "rxe0,rxe1"},
                {"device_names": "rxe2,rxe3"},
                {"protocol": "tcp"},
            ],
        )
