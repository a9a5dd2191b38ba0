"""Engines never meet if their bytes mean different things, and equal engines always do."""

from dataclasses import replace
from typing import Any

import pytest
from offload_node import CHUNK_BYTES, PARALLEL, OffloadNode, keys_of
from vllm.v1.kv_offload.config import (
    OffloadingCacheConfig,
    OffloadingGroupConfig,
    OffloadingModelConfig,
)

KEYS = keys_of("one prompt", 4)


@pytest.fixture(scope="module", autouse=True)
def first(nodes: Any) -> Any:
    node = OffloadNode(nodes[0].socket_path)
    node.prefill(KEYS)
    yield node
    node.close()


@pytest.mark.parametrize(
    "options",
    [
        {"model": OffloadingModelConfig("other/model", "bfloat16")},
        {"model": OffloadingModelConfig("test/model", "fp8_e5m2")},
        {"cache": OffloadingCacheConfig(8, 1)},
        {"cache": OffloadingCacheConfig(16, 2), "worker_kv_bytes_per_block": CHUNK_BYTES // 2},
        {"groups": (OffloadingGroupConfig(16, ("layers.0", "layers.2"), 0),)},
        {"groups": (OffloadingGroupConfig(16, ("layers.0", "layers.1"), 1),)},
        {"groups": (OffloadingGroupConfig(32, ("layers.0", "layers.1"), 0),)},
        {"worker_kv_bytes_per_block": CHUNK_BYTES - 64},
        {"kv_cache_layout": "BLHNC"},
        {"canonical_layout": True},
        {"replicated_layout": True},
        {"parallel": replace(PARALLEL, tp_size=2)},
        {"parallel": replace(PARALLEL, pp_size=2)},
        {"parallel": replace(PARALLEL, pcp_size=2)},
        {"parallel": replace(PARALLEL, dcp_size=2)},
        {"hash_algorithm": "sha256_cbor"},
        {"tier": {"model_revision": "2"}},
        {"tier": {"namespace": "staging"}},
        {"tier": {"tenant": "acme"}},
    ],
    ids=str,
)
def test_engines_that_differ_never_meet(nodes: Any, make_node: Any, options: Any) -> None:
    assert make_node(nodes[0].socket_path, **options).found(KEYS) == 0


def test_engines_with_another_seed_never_meet(
    nodes: Any, make_node: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONHASHSEED", "7")
    assert make_node(nodes[0].socket_path).found(KEYS) == 0


def test_engines_of_another_release_or_accelerator_never_meet(
    nodes: Any, make_node: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from vllm.platforms import current_platform

    from peercache_client.vllm import tier

    with monkeypatch.context() as patch:
        patch.setattr(tier, "vllm_version", "0.33.0")
        assert make_node(nodes[0].socket_path).found(KEYS) == 0
    with monkeypatch.context() as patch:
        patch.setattr(type(current_platform), "get_device_capability", lambda *_: (9, 0))
        assert make_node(nodes[0].socket_path).found(KEYS) == 0


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"slots": 5},
        {"parallel": replace(PARALLEL, data_parallel_index=1, data_parallel_size=2)},
        {"enable_kv_cache_events": False},
    ],
    ids=str,
)
def test_engines_with_the_same_bytes_meet(nodes: Any, make_node: Any, options: Any) -> None:
    assert make_node(nodes[0].socket_path, **options).found(KEYS) == len(KEYS)


def test_operators_can_read_the_namespace(nodes: Any, make_node: Any) -> None:
    node = make_node(nodes[0].socket_path, tier={"tenant": "a/b", "model_revision": "2"})
    head = node.tier._make_namespace().rpartition("/")[0]
    assert head == "vllm1/test%2Fmodel/2//a%2Fb"


def test_a_request_before_the_root_hash_is_known_shares_nothing(
    nodes: Any, make_node: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from vllm.v1.core import kv_cache_utils

    node = make_node(nodes[0].socket_path)
    monkeypatch.delattr(kv_cache_utils, "NONE_HASH")
    assert node.found(KEYS) == 0
