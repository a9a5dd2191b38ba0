"""Buffer-only host memory: only the daemon has the pages that have left the device.

SGLang reuses a host page as soon as `batch_set` has answered, so the answer must mean that the
bytes are safe and can be found.
"""

from collections.abc import Iterator
from typing import Any

import pages
import pytest
import torch
from buffer_node import BufferNode
from controller_node import Shape
from harness.cluster import Cluster
from harness.fixtures import FAST
from harness.waiting import eventually
from radix_node import RadixNode

from peercache_client import notes


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """One daemon that this test may harm; not started."""
    with Cluster(1, options=FAST) as made:
        yield made


def same(one: list[Any], other: list[Any]) -> bool:
    return all(map(torch.equal, one, other))


@pytest.mark.parametrize("layout", ["page_first", "layer_first"])
@pytest.mark.parametrize("kind", ["mha", "mla"])
def test_pages_written_through_the_buffer_are_found_on_another_node(
    nodes: Any, kind: str, layout: str
) -> None:
    shape = Shape(kind=kind, layout=layout)
    name = f"buffer {kind} {layout}"
    tokens = pages.tokens(name, 7 * 16)
    with BufferNode(nodes[0].socket_path, shape, model=name) as one:
        one.prefill(tokens)
        assert one.host_pool_is_empty()
    with BufferNode(nodes[1].socket_path, shape, model=name) as other:
        assert other.fetch(tokens + pages.tokens("more", 40)) == len(tokens)
        assert same(other.load(tokens), other.expected(tokens))
        assert other.host_pool_is_empty()


def test_both_host_memory_modes_share_pages(nodes: Any) -> None:
    shape = Shape()
    tokens = pages.tokens("modes", 64)
    with BufferNode(nodes[0].socket_path, shape, model="modes") as one:
        one.prefill(tokens)
    with RadixNode(nodes[1].socket_path, shape, model="modes") as other:
        assert other.fetch(tokens) == 64
        assert same(other.load(tokens), other.expected(tokens))


def test_host_pages_are_reused_at_once_and_nothing_is_mixed_up(nodes: Any) -> None:
    """Prompts go through the host pool one after another, with three times its pages in all."""
    shape = Shape(tokens=1024, layers=2, heads=2)
    prompts = [pages.tokens(f"reuse {i}", 8 * 16) for i in range(7)]
    with (
        BufferNode(nodes[0].socket_path, shape, model="reuse", ratio=0.25) as one,
        BufferNode(nodes[1].socket_path, shape, model="reuse", ratio=0.25) as other,
    ):
        assert 3 * one.pool.size <= sum(map(len, prompts))
        for tokens in prompts:
            one.prefill(tokens)
            assert one.host_pool_is_empty()
        for tokens in prompts:
            assert other.fetch(tokens) == len(tokens)
            assert same(other.load(tokens), other.expected(tokens))


def test_dead_daemon_leaves_the_buffer_free_and_is_logged(cluster: Cluster, caplog: Any) -> None:
    """Without a daemon, written pages are lost. Keeping them would fill up the host pool."""
    shape = Shape(tokens=1024)
    cluster.start()
    with BufferNode(cluster[0].socket_path, shape, model="away", ratio=0.25) as node:
        node.prefill(pages.tokens("away before", 64))
        cluster[0].kill()
        for number in range(6):
            node.prefill(pages.tokens(f"away {number}", 128))
            assert node.host_pool_is_empty()
        notes.flush()
        assert "pages were not set: " in caplog.text
        assert "no_daemon" in caplog.text
        cluster[0].start()
        cluster.wait_complete()
        backend = node.controller.storage_backend
        hashes = pages.hashes("away again", 1)
        source = pages.alloc(node.pool, 1)
        eventually(lambda: all(backend.batch_set_v1(hashes, source)))
        node.pool.free(source)
        node.prefill(pages.tokens("away after", 64))
    with BufferNode(cluster[0].socket_path, shape, model="away") as other:
        assert other.fetch(pages.tokens("away after", 64)) == 64
        assert other.fetch(pages.tokens("away 3", 128)) == 0


def test_a_slow_daemon_holds_the_buffer_and_loses_nothing(nodes: Any, monkeypatch: Any) -> None:
    """SGLang's fault wrapper delays every call, so writes queue until the buffer has room."""
    monkeypatch.setenv("SGLANG_TEST_HICACHE_BACKEND_RANDOM_DELAY", "0.05")
    shape = Shape(tokens=1024)
    prompts = [pages.tokens(f"slow {i}", 64) for i in range(8)]
    with BufferNode(nodes[0].socket_path, shape, model="slow", ratio=0.25) as one:
        for tokens in prompts[:-1]:
            one.insert(tokens)
        assert not one.all_written()
        one.prefill(prompts[-1])
        assert one.host_pool_is_empty()
    monkeypatch.delenv("SGLANG_TEST_HICACHE_BACKEND_RANDOM_DELAY")
    with BufferNode(nodes[1].socket_path, shape, model="slow") as other:
        for tokens in prompts:
            assert other.fetch(tokens) == len(tokens)
            assert same(other.load(tokens), other.expected(tokens))


def test_a_node_with_side_pools_only_is_written_and_found(make_node: Any) -> None:
    """SGLang writes some nodes with an empty list of KV pages, if the KV is there already."""
    from sglang.srt.mem_cache.hicache_storage import PoolHitPolicy, PoolName, PoolTransfer

    shape = Shape()
    options: dict[str, Any] = {"model": "side only", "sidecars": [(PoolName.SWA, shape)]}
    one, other = make_node(0, shape, **options), make_node(1, shape, **options)
    tokens = pages.tokens("side only", 64)
    hashes = pages.hashes("side only", 4)
    source = pages.alloc(one.pool, 4)
    pages.fill(one.pool, source, "kv")
    assert one.backup(tokens, source).completed_tokens == 64

    side = one.pools[PoolName.SWA]
    side_source = pages.alloc(side, 2)
    written = pages.fill(side, side_source, "side")

    def window(indices: Any) -> PoolTransfer:
        return PoolTransfer(
            name=PoolName.SWA,
            host_indices=indices,
            keys=hashes[2:],
            hit_policy=PoolHitPolicy.TRAILING_PAGES,
        )

    assert other.backend.batch_exists_v2(hashes, [window(None)]).kv_hit_pages == 0
    one.controller.write_storage(
        torch.empty(0, dtype=torch.int64), [], [], extra_pools=[window(side_source)]
    )
    operation = one.controller.ack_backup_queue.get(timeout=30)
    assert operation.pool_storage_result.extra_pool_hit_pages[PoolName.SWA] == 2
    assert other.backend.batch_exists_v2(hashes, [window(None)]).kv_hit_pages == 4
    target = pages.alloc(other.pools[PoolName.SWA], 2)
    assert other.backend.batch_get_v2([window(target)]) == {PoolName.SWA: [True, True]}
    assert pages.read(other.pools[PoolName.SWA], target) == written


def test_an_empty_list_of_pages_is_no_failure(make_node: Any) -> None:
    node = make_node(0, Shape(), model="empty")
    none = torch.empty(0, dtype=torch.int64)
    assert node.backend.batch_set_v1([], none) == []
    assert node.backend.batch_get_v1([], none) == []
    assert node.backend.batch_set_v2([]) == {}
    assert node.backend.batch_exists([]) == 0
