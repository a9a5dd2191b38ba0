"""Attaching, detaching, clearing, statistics: SGLang's uses of a backend besides pages."""

from typing import Any

import pages
import pytest
from controller_node import ControllerNode, Rank, Shape, as_rank

SHAPE = Shape()


def set_some(node: ControllerNode, name: str) -> tuple[list[str], list[bytes]]:
    hashes = pages.hashes(name, 4)
    source = pages.alloc(node.pool, 4)
    written = pages.fill(node.pool, source, name)
    assert all(node.backend.batch_set_v1(hashes, source))
    return hashes, written


def test_clear_empties_the_model_on_all_nodes_and_no_other(make_node: Any) -> None:
    one, other = make_node(0, SHAPE, model="cleared"), make_node(1, SHAPE, model="cleared")
    spared = make_node(0, SHAPE, model="spared")
    hashes, _ = set_some(one, "clear")
    set_some(spared, "clear")
    assert other.backend.batch_exists(hashes) == 4
    assert other.controller.clear_storage_backend()
    assert [node.backend.batch_exists(hashes) for node in (one, other, spared)] == [0, 0, 4]
    set_some(one, "clear")
    assert other.backend.batch_exists(hashes) == 4


def test_pages_outlive_the_backend_and_are_there_for_the_next(make_node: Any) -> None:
    node = make_node(0, SHAPE, model="again")
    hashes, written = set_some(node, "again")
    config = dict(node.controller.storage_config.extra_config)
    node.controller.detach_storage_backend()
    with as_rank(Rank()):
        node.controller.attach_storage_backend(
            storage_backend="dynamic",
            prefetch_threshold=1,
            model_name="again",
            storage_backend_extra_config=config,
        )
    target = pages.alloc(node.pool, 4)
    assert all(node.backend.batch_get_v1(hashes, target))
    assert pages.read(node.pool, target) == written


def test_a_closed_backend_misses(make_node: Any) -> None:
    node = make_node(0, SHAPE, model="closed")
    backend = node.backend
    hashes, _ = set_some(node, "closed")
    backend.close()
    backend.close()
    assert backend.batch_exists(hashes) == 0
    assert backend.batch_get_v1(hashes, pages.alloc(node.pool, 4)) == [False] * 4


def test_get_stats_covers_only_the_time_since_its_last_call(make_node: Any) -> None:
    node = make_node(0, SHAPE, model="figures")
    assert node.backend.get_stats() is None  # SGLang runs without metrics
    node.backend._with_metrics = True
    hashes, _ = set_some(node, "figures")
    node.backend.batch_get_v1(hashes[:3], pages.alloc(node.pool, 3))
    stats = node.backend.get_stats()
    assert (stats.backup_pgs, stats.prefetch_pgs) == ([4], [3])
    assert len(stats.backup_bandwidth) == len(stats.prefetch_bandwidth) == 1
    assert node.backend.get_stats().backup_pgs == []


def test_sglang_s_own_faults_do_no_harm(make_node: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("SGLANG_TEST_HICACHE_BACKEND_RANDOM_DELAY", "0.002")
    monkeypatch.setenv("SGLANG_TEST_HICACHE_BACKEND_RANDOM_FAILURE", "0.3")
    one, other = make_node(0, SHAPE, model="faults"), make_node(1, SHAPE, model="faults")
    assert type(one.backend).__name__ == "HiCacheStorageFailureInjector"
    hits = 0
    for i in range(30):
        tokens = pages.tokens(f"faults {i}", 64)
        source = pages.alloc(one.pool, 4)
        written = pages.fill(one.pool, source, i)
        one.backup(tokens, source)
        one.pool.free(source)
        operation = other.prefetch(tokens)
        done = operation.completed_tokens // 16
        if done:
            hits += done
            assert pages.read(other.pool, operation.host_indices)[:done] == written[:done]
        if operation.host_indices is not None:
            other.pool.free(operation.host_indices)
    assert 0 < hits < 120


@pytest.mark.parametrize("interface_v1", [0, 1])
def test_single_pages_and_flat_tensors(make_node: Any, interface_v1: int) -> None:
    """The oldest methods exist, but they take flat tensors only without interface_v1."""
    import torch

    node = make_node(0, SHAPE, model=f"single {interface_v1}", interface_v1=interface_v1)
    key = "ab" * 32
    page = torch.arange(100, dtype=torch.int32)
    assert node.backend.set(key, page) is (interface_v1 == 0)
    assert node.backend.exists(key) is (interface_v1 == 0)
    room = torch.zeros_like(page)
    got = node.backend.get(key, room)
    if interface_v1 == 0:
        assert got is room
        assert torch.equal(room, page)
        assert node.backend.get(key, torch.zeros(99, dtype=torch.int32)) is None
        assert node.backend.batch_set([key], None) is False
    else:
        assert got is None
