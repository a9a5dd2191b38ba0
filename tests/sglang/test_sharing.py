"""The daemon maps SGLang's host pools. If it cannot, the client copies the pages."""

import ctypes
from pathlib import Path
from typing import Any

import pages
import pytest
from controller_node import Shape, host_pool
from sglang.srt.mem_cache.hicache_storage import PoolName, PoolTransfer

from peercache_client import notes

SHAPE = Shape()


def regions_of(node: Any) -> int:
    """The regions that the client has registered. It passes a file once."""
    found: int = node.backend._client.stats()["regions"]
    return found


def test_k_and_v_of_one_allocation_are_passed_once(make_node: Any) -> None:
    node = make_node(0, SHAPE, model="once")
    assert regions_of(node) == 1
    assert node.backend._forms[PoolName.KV].shared


def test_each_allocation_of_an_asymmetric_pool_is_passed(make_node: Any) -> None:
    assert regions_of(make_node(0, Shape(v_head_dim=16), model="asymmetric")) == 2


def test_registering_the_same_pool_again_passes_nothing(make_node: Any) -> None:
    node = make_node(0, SHAPE, model="again")
    node.backend.register_mem_host_pool_v2(node.pool, PoolName.KV)
    node.backend.register_mem_pool_host(node.group)
    assert regions_of(node) == 1


def test_a_late_pool_brings_its_own_memory(make_node: Any) -> None:
    node = make_node(0, SHAPE, model="late memory")
    late = host_pool(Shape(kind="mla"))
    node.backend.register_mem_host_pool_v2(late, PoolName.DRAFT)
    assert regions_of(node) == 2


@pytest.fixture
def private_pools(monkeypatch: Any) -> None:
    """SGLang's faster allocation makes private memory, which no other process can map."""
    monkeypatch.setenv("SGLANG_HICACHE_HOST_PARALLEL_ALLOC_THREADS", "1")


@pytest.mark.parametrize(
    ("allocator", "advice"),
    [
        ("", 'start SGLang with "allocator": "shm" in the extra config, at its start'),
        ("shmm", 'with "allocator": "shm" in the extra config, not "allocator": "shmm"'),
    ],
)
def test_unshareable_pool_is_logged_and_copied(
    make_node: Any, private_pools: None, caplog: Any, allocator: str, advice: str
) -> None:
    name = f"private {allocator}"
    one = make_node(0, SHAPE, model=name, allocator=allocator)
    notes.flush()
    assert advice in caplog.text
    assert regions_of(one) == 0
    shared = make_node(1, SHAPE, model=name)
    hashes = pages.hashes(name, 4)
    source = pages.alloc(one.pool, 4)
    written = pages.fill(one.pool, source, name)
    assert one.backend.batch_set_v1(hashes, source) == [True] * 4
    for node in (one, shared):
        target = pages.alloc(node.pool, 4)
        assert node.backend.batch_get_v1(hashes, target) == [True] * 4
        assert pages.read(node.pool, target) == written


def test_shared_and_private_pools_go_in_one_call(make_node: Any, monkeypatch: Any) -> None:
    from controller_node import extra_config, publish

    node = make_node(0, SHAPE, model="mixed")
    monkeypatch.setenv("SGLANG_HICACHE_HOST_PARALLEL_ALLOC_THREADS", "1")
    publish(SHAPE, extra_config(Path("unused"), allocator=""))
    private = host_pool(Shape(kind="mla"))
    node.backend.register_mem_host_pool_v2(private, PoolName.SWA)
    hashes = pages.hashes("mixed", 3)
    written = []
    transfers = []
    for name, pool in ((PoolName.KV, node.pool), (PoolName.SWA, private)):
        indices = pages.alloc(pool, 3)
        written.append(pages.fill(pool, indices, name))
        transfers.append(PoolTransfer(name=name, host_indices=indices, keys=hashes))
    ok = {PoolName.KV: [True] * 3, PoolName.SWA: [True] * 3}
    assert node.backend.batch_set_v2(transfers) == ok
    for pool, each in zip((node.pool, private), transfers, strict=True):
        each.host_indices = pages.alloc(pool, 3)
    assert node.backend.batch_get_v2(transfers) == ok
    got = [
        pages.read(pool, each.host_indices)
        for pool, each in zip((node.pool, private), transfers, strict=True)
    ]
    assert got == written


def test_a_get_writes_its_pages_and_nothing_else(make_node: Any) -> None:
    one, other = make_node(0, SHAPE, model="elsewhere"), make_node(1, SHAPE, model="elsewhere")
    hashes = pages.hashes("elsewhere", 4)
    source = pages.alloc(one.pool, 4)
    pages.fill(one.pool, source, "elsewhere")
    assert all(one.backend.batch_set_v1(hashes[:3], source[:48]))

    everything = pages.alloc(other.pool, other.pool.page_num)
    before = pages.fill(other.pool, everything, "before")
    target = everything[80:144]  # no node has the last of the four pages
    assert other.backend.batch_get_v1(hashes, target) == [True, True, True, False]
    after = pages.read(other.pool, everything)
    assert after[:5] == before[:5]
    assert after[8:] == before[8:]
    assert after[5:8] == pages.read(one.pool, source)[:3]


def test_page_memory_can_be_reused_once_its_set_returns(make_node: Any) -> None:
    one, other = make_node(0, SHAPE, model="reuse"), make_node(1, SHAPE, model="reuse")
    written = []
    indices = pages.alloc(one.pool, 2)
    hashes = pages.hashes("reuse", 20)
    for i in range(0, 20, 2):
        written += pages.fill(one.pool, indices, i)
        assert all(one.backend.batch_set_v1(hashes[i : i + 2], indices))
    ctypes.memset(one.pool.kv_buffer.data_ptr(), 0xEE, one.pool.kv_buffer.nbytes)
    target = pages.alloc(other.pool, 20)
    assert all(other.backend.batch_get_v1(hashes, target))
    assert pages.read(other.pool, target) == written
