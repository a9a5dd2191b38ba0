"""SGLang's own test kit for stores (`sglang.test.kits.unified_radix_cache`), with our backend.

The kit makes whole radix caches, writes prompts through to a store, and prefetches them into other
caches. It uses SGLang's file store. Each test here runs with that store, too, which shows that the
test is right about SGLang.
"""

import json
import unittest
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from controller_node import extra_config
from sglang.srt.environ import envs
from sglang.srt.mem_cache.base_prefix_cache import CacheRequestHandle
from sglang.test.kits.unified_radix_cache import fixtures, mixins
from sglang.test.kits.unified_radix_cache.config import CONFIGS, CacheConfig
from sglang.test.kits.unified_radix_cache.fixtures import match_prefix
from sglang.test.kits.unified_radix_cache.storage import UnifiedRadixCacheStorageFixtures

# Stacks of SWA and Mamba have no HiCache in the kit.
CASES = [cfg for cfg in CONFIGS if not (cfg.has_swa and cfg.has_mamba)]


class Kit(UnifiedRadixCacheStorageFixtures, unittest.TestCase):  # type: ignore[misc]
    """The kit's steps, for one of its configurations."""

    def __init__(self, cfg: CacheConfig) -> None:
        super().__init__()
        self.cfg = cfg

    def runTest(self) -> None:
        pass

    def _init_hicache(self, cache: Any, **options: Any) -> None:
        super()._init_hicache(cache, **options)
        for entry in cache.cache_controller.mem_pool_host.entries:
            entry.host_pool.pin_memory = False  # torch can pin scratch pages only with CUDA


@pytest.fixture(params=["file", "peercache"])
def make_kit(request: Any, nodes: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """`make_kit(cfg)`. With peercache, each new cache is beside the other of two daemons."""
    made: list[Kit] = []
    places = iter(range(1000))
    server_args = mixins.ServerArgs

    def with_our_store(**options: Any) -> Any:
        if options["hicache_storage_backend"] == "file":
            folder = Path(envs.SGLANG_HICACHE_FILE_BACKEND_STORAGE_DIR.get())
            given = json.loads(options["hicache_storage_backend_extra_config"] or "{}")
            socket_path = nodes[next(places) % 2].socket_path
            extra = extra_config(socket_path, **given, namespace=folder.name)
            options["hicache_storage_backend"] = "dynamic"
            options["hicache_storage_backend_extra_config"] = json.dumps(extra)
        return server_args(**options)

    if request.param == "peercache":
        monkeypatch.setattr(mixins, "ServerArgs", with_our_store)
    monkeypatch.setattr(fixtures, "get_device", lambda: "cpu")

    def make(cfg: CacheConfig) -> Kit:
        made.append(Kit(cfg))
        return made[-1]

    yield make
    for kit in made:
        kit.doCleanups()


def names(cfg: CacheConfig) -> str:
    return str(cfg.label)


@pytest.mark.parametrize("cfg", CASES, ids=names)
def test_a_prompt_of_one_cache_is_loaded_by_another(make_kit: Any, cfg: CacheConfig) -> None:
    kit = make_kit(cfg)
    tokens = kit._make_seq(1, 3)
    folder = kit._make_storage_dir()
    written = kit._l3_produce(folder, tokens, marker=7)
    cache, allocator, requests = kit._l3_consumer(folder)
    kit._consume_prefetch(cache, tokens, CacheRequestHandle("r", 0))
    assert match_prefix(cache, tokens).host_hit_length == len(tokens)
    kit._load_back_through_admission(cache, requests, tokens)
    kit._finish_pending_loads(cache)
    match = match_prefix(cache, tokens)
    assert match.device_prefix_len == len(tokens)
    got = kit._snapshot_full_kv(allocator, cache.path_device_indices(match.last_device_node))
    assert all(map(torch.equal, got, written))
    cache.sanity_check()


@pytest.mark.parametrize("cfg", [cfg for cfg in CASES if not cfg.has_mamba], ids=names)
def test_a_cache_without_host_memory_of_its_own_gets_pages_that_it_lacks(
    make_kit: Any, cfg: CacheConfig
) -> None:
    """In buffer-only mode. Another request computes the first page while the others arrive."""
    kit = make_kit(cfg)
    tokens = kit._buffer_swa_seq() if cfg.has_swa else kit._make_seq(1, 4)
    kit._assert_sibling_head_is_trimmed(kit._make_storage_dir(), tokens, window_sized=False)


@pytest.mark.parametrize(
    "cfg", [cfg for cfg in CASES if cfg.has_swa and cfg.page_size > 1], ids=names
)
@pytest.mark.parametrize("other_rank_lacks_it", [False, True])
def test_a_window_that_another_rank_lacks_is_not_used(
    make_kit: Any, cfg: CacheConfig, other_rank_lacks_it: bool
) -> None:
    kit = make_kit(cfg)
    folder, tokens = kit._setup_swa_tp_prefetch()
    cache, *_ = kit._l3_consumer(folder)
    kit._patch_tp_prefetch_sync(cache, drop_swa=other_rank_lacks_it)
    kit._consume_prefetch(cache, tokens, CacheRequestHandle("r", 0))
    assert kit._swa_host_on_path(cache, tokens) != other_rank_lacks_it
