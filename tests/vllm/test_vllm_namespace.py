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
# Each rank has half of the heads, so a chunk has as many bytes as with one rank.
TP_2: Any = {
    "parallel": replace(PARALLEL, tp_size=2, world_size=2),
    "worker_kv_bytes_per_block": CHUNK_BYTES // 2,
}


@pytest.fixture(autouse=True)
def without_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    from peercache_client.vllm import tier

    monkeypatch.setattr(tier, "check_ranks", lambda *_: None)


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
        TP_2,
        {**TP_2, "parallel": replace(TP_2["parallel"], is_parallelism_agnostic=True)},
        {**TP_2, "canonical_layout": True},
        {"parallel": TP_2["parallel"], "replicated_layout": True},
        {**TP_2, "parallel": replace(TP_2["parallel"], tp_size=1, pp_size=2)},
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


def test_an_engine_that_only_stores_finds_nothing(nodes: Any, make_node: Any) -> None:
    """So it computes all chunks, and the daemon compares their bytes with those of others."""
    canary: OffloadNode = make_node(nodes[1].socket_path, tier={"stores_only": True})
    assert canary.found(KEYS) == 0
    canary.prefill(KEYS)
    assert canary.counted()["store", "ok"] == len(KEYS)
    canary.evict_host_memory()
    assert canary.found(KEYS) == 0


def test_engines_with_another_seed_never_meet(
    nodes: Any, make_node: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONHASHSEED", "7")
    assert make_node(nodes[0].socket_path).found(KEYS) == 0


def namespace(
    nodes: Any, make_node: Any, monkeypatch: pytest.MonkeyPatch, version: str = "", **options: Any
) -> str:
    """The namespace of an engine. `version`: of its vLLM; by default the installed one."""
    from peercache_client.vllm import tier

    with monkeypatch.context() as patch:
        if version:
            patch.setattr(tier, "vllm_version", version)
        made: str = make_node(nodes[0].socket_path, **options).tier._make_namespace()
    return made


def test_releases_with_the_same_bytes_meet_and_others_do_not(
    nodes: Any, make_node: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def made(version: str) -> str:
        return namespace(nodes, make_node, monkeypatch, version)

    compared = {made(each) for each in ("0.32.0", "0.33.0", "0.33.1", "0.33.0+cu129")}
    assert len(compared) == 1
    others = ["0.31.0", "0.34.0", "0.34.1", "0.33.0rc1", "0.34.0.dev3+g12", "1.33.0"]
    assert len({made(each) for each in others} - compared) == len(others)


def test_engines_on_another_accelerator_never_meet(
    nodes: Any, make_node: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from vllm.platforms import current_platform

    monkeypatch.setattr(type(current_platform), "get_device_capability", lambda *_: (9, 0))
    assert make_node(nodes[0].socket_path).found(KEYS) == 0


def canonical(tp: int, **changes: Any) -> dict[str, Any]:
    """Of a model with two KV heads and certified pages."""
    parallel = replace(PARALLEL, tp_size=tp, world_size=tp, is_parallelism_agnostic=True)
    heads = max(1, 2 // tp)
    return {
        "canonical_layout": True,
        "parallel": replace(parallel, **changes),
        "worker_kv_bytes_per_block": CHUNK_BYTES * heads // 2,
    }


def test_certified_canonical_pages_have_no_tp_size(
    nodes: Any, make_node: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def made(options: dict[str, Any]) -> str:
        return namespace(nodes, make_node, monkeypatch, **options)

    one = made(canonical(1))
    assert made(canonical(2)) == one
    uncertain = [
        canonical(2, is_parallelism_agnostic=False),
        canonical(2, pp_size=2, world_size=4),
        canonical(2, dcp_size=2),
        # Two ranks share a head: a slot has unused bytes, and another size.
        canonical(4),
        {**canonical(2), "kv_cache_layout": "LBNHC"},
        # MLA, with one copy for all ranks.
        {**canonical(2), "replicated_layout": True, "worker_kv_bytes_per_block": CHUNK_BYTES},
        # Ranks side by side. vLLM calls them agnostic, too.
        {**canonical(1), "canonical_layout": False},
        {**canonical(2), "canonical_layout": False},
    ]
    made_of = [made(options) for options in uncertain]
    assert len({one, *made_of}) == len(uncertain) + 1


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
