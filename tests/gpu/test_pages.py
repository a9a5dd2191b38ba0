"""Pages go from memory of a GPU into the cluster, and on each way back to a GPU."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from harness.cluster import Cluster
from harness.disks import disk_options, wait_written
from harness.fixtures import MakeCluster
from harness.layered_pages import Shape, layered_pages
from harness.pages import keys_of

from gpu.conftest import Connect
from gpu.cuda import GpuMemory

PAGES = 32
Make = Callable[[int], GpuMemory]


def some_shape(seed: int) -> Shape:
    rng = random.Random(seed)
    return Shape(
        layers=rng.randint(1, 9),
        tokens=rng.randint(1, 17),
        row=rng.randint(1, 3000),
        gap=rng.choice([0, rng.randint(1, 100)]),
        by_token=rng.random() < 0.5,
        allocations=rng.randint(1, 2),
    )


SHAPES = [
    pytest.param(Shape(), id="page_first"),
    pytest.param(Shape(layers=64, tokens=16, row=1024, by_token=False), id="layer_first"),
    *(pytest.param(some_shape(seed), id=f"seed {seed}") for seed in range(6)),
]


@pytest.mark.parametrize("shape", SHAPES)
def test_pages_come_from_the_pool_and_from_a_peer(
    nodes: Cluster, connect: Connect, memory: Make, shape: Shape
) -> None:
    keys = keys_of(str(shape), PAGES)
    for daemon in nodes.daemons:
        client = connect(daemon)
        with layered_pages(client, PAGES, memory, shape) as pages:
            if daemon is nodes[0]:
                assert all(pages.store(client, keys))
            assert client.batch_exists(keys) == PAGES
            pages.check(client, keys)
            # A worker with host memory reads the same bytes.
            assert client.get(keys[0], pages.page_bytes) == pages.content(keys[0])


def test_pages_come_from_disk(
    make_cluster: MakeCluster, connect: Connect, memory: Make, tmp_path: Path
) -> None:
    [daemon] = make_cluster(1, pool_size="16MiB", each=disk_options(tmp_path, "a")).daemons
    client = connect(daemon)
    with layered_pages(client, PAGES, memory) as pages:
        keys = keys_of("cold", PAGES)
        assert all(pages.store(client, keys))
        wait_written(daemon)
        for turn in range(24):
            assert all(pages.store(client, keys_of(f"other {turn}", PAGES)))
            wait_written(daemon)
        pages.check(client, keys)
        assert daemon.status()["gpus"][0]["copied_bytes"] == 26 * PAGES * pages.page_bytes
