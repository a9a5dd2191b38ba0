"""Tests that need a GPU: `make test-gpu`. Without one they are skipped, with the reason."""

from collections.abc import Iterator

import pytest
from harness.cluster import Cluster
from harness.fixtures import FAST

from gpu.cuda import Gpu, NoGpu


@pytest.fixture(scope="session")
def gpu() -> Gpu:
    try:
        return Gpu()
    except NoGpu as reason:
        pytest.skip(f"no GPU: {reason}")


@pytest.fixture(scope="module")
def nodes(gpu: Gpu) -> Iterator[Cluster]:
    """Two daemons with room for all pages of the tests."""
    with Cluster(2, options={**FAST, "pool-size": "1GiB"}) as cluster:
        cluster.start()
        yield cluster
