"""`cuda.export` of each kind of memory, and what the daemon does with it."""

from collections.abc import Callable
from functools import partial

import pytest
from harness.cluster import Cluster, Daemon
from harness.layered_pages import layered_pages
from harness.pages import keys_of

from gpu.conftest import Connect
from gpu.cuda import CHUNK_BYTES, ChunkMemory, Gpu, GpuMemory
from gpu.worker import Worker
from peercache_client import cuda
from peercache_client.device import Kind, Layout, Rows

PAGES = 8
KEYS = keys_of("export", PAGES)


def test_a_chunk_of_mapped_memory(nodes: Cluster, connect: Connect, gpu: Gpu) -> None:
    """PyTorch's expandable segments are such memory."""
    client = connect(nodes[0])
    with layered_pages(client, PAGES, partial(ChunkMemory, gpu)) as pages:
        assert pages.gpu.memory.kind == Kind.cuda_posix
        assert all(pages.store(client, KEYS))
        pages.check(client, KEYS)


def test_memory_in_two_chunks_is_refused(gpu: Gpu) -> None:
    address = gpu.alloc_chunks(2)
    with pytest.raises(OSError, match="in several allocations"):
        cuda.export(address, CHUNK_BYTES + 1)
    gpu.free_chunks(address, 2)


def test_small_allocations_are_not_mixed_up(nodes: Cluster, connect: Connect, gpu: Gpu) -> None:
    """The driver takes them from one block of 2 MiB."""
    client = connect(nodes[0])
    size = 64 << 10
    addresses = [gpu.alloc(size) for _ in KEYS]
    for number, address in enumerate(addresses):
        gpu.write(address, bytes([number + 1]) * size)
        found = cuda.export(address, size)
        with client.register_device(found.memory) as region:
            layout = Layout([Rows(region, found.offset, size, size, 0)])
            assert all(client.batch_set_device([KEYS[number]], layout, [0]))
    for number, address in enumerate(addresses):
        assert client.get(KEYS[number], size) == bytes([number + 1]) * size
        gpu.free(address)


def test_two_regions_of_one_allocation(nodes: Cluster, connect: Connect, gpu: Gpu) -> None:
    """The one that stays works after the other is closed."""
    client = connect(nodes[0])
    with layered_pages(client, PAGES, partial(GpuMemory, gpu)) as pages:
        second = client.register_device(cuda.export(pages.gpu.address, 1).memory)
        assert all(pages.store(client, KEYS))
        layout = Layout([rows._replace(region=second) for rows in pages.rows])
        assert all(client.batch_get_device(KEYS, layout, range(PAGES)))
        second.close()
        pages.check(client, KEYS)


def test_expandable_segments_of_pytorch(
    nodes: Cluster, work: Callable[[Daemon, str], Worker]
) -> None:
    worker = work(nodes[0], "segments")
    first = worker.line()
    if "PyTorch" in first:
        pytest.skip(first)
    assert first == Kind.cuda_posix.name
    assert "in several allocations" in worker.line()
