"""Chooses the device pools that the linker moves.

SGLang's builder (0.5.23) knows hybrid pools only. The pools of ordinary models are made here, in
the same form: plain MHA and MLA, full with sliding-window attention, and MHA with Mamba states.
"""

from __future__ import annotations

from typing import Any

from sglang.srt.mem_cache.deepseek_v4_memory_pool import DeepSeekV4TokenToKVPool
from sglang.srt.mem_cache.device_pool_info import KVBufferLayout
from sglang.srt.mem_cache.hicache_storage import PoolName
from sglang.srt.mem_cache.hybrid_cache.hybrid_pool_assembler import (
    _stage_local_layer_mapping,
    _swa_layer_mappings,
)
from sglang.srt.mem_cache.hybrid_cache.linker_pool_assembler import (
    DevicePoolEntry,
    DevicePoolGroup,
    _mamba_device_pool_entry,
    _mha_device_pool_entry,
    resolve_hybrid_device_pool_group,
)
from sglang.srt.mem_cache.memory_pool import (
    HybridLinearKVPool,
    MHATokenToKVPool,
    MLATokenToKVPool,
)
from sglang.srt.mem_cache.swa_memory_pool import SWAKVPool
from sglang.srt.mem_cache.unified_cache.component_type import ComponentType
from sglang.srt.runtime_context import get_parallel


def device_pools(params: Any, components: set[ComponentType]) -> DevicePoolGroup:
    """`params`: SGLang's CacheInitParams. ValueError for a pool that cannot be moved."""
    pool = params.token_to_kv_pool_allocator.get_kvcache()
    entries = _entries(pool, params, components)
    if not entries:
        return resolve_hybrid_device_pool_group(
            kvcache=pool, page_size=params.page_size, params=params, components=components
        )
    if get_parallel().attn_dcp_size > 1:
        raise ValueError("the external linker does not support --dcp-size above 1")
    if params.mtp_draft_device_pools:
        raise ValueError(
            f"the external linker does not support MTP layers packed with {type(pool).__name__}: "
            "start without speculative decoding, or with HiCache"
        )
    for draft in params.sidecar_draft_device_pools:
        entries.append(_draft(draft, params.page_size))
    layers = 1 + max(layer for entry in entries for layer in entry.layer_mapping)
    replicated = type(pool) is MLATokenToKVPool
    return DevicePoolGroup(entries, layers, params.page_size, rank_replicated=replicated)


def is_replicated(params: Any) -> bool:
    """Whether all TP ranks have the same KV, as HiCache's controller tells it to a backend."""
    pool = params.token_to_kv_pool_allocator.get_kvcache()
    if isinstance(pool, HybridLinearKVPool):
        pool = pool.full_kv_pool
    return isinstance(pool, (MLATokenToKVPool, DeepSeekV4TokenToKVPool))


def _entries(pool: Any, params: Any, components: set[ComponentType]) -> list[DevicePoolEntry]:
    """The entries for pools that SGLang's builder leaves out; none for all others."""
    kind, page_size = type(pool), params.page_size
    if components == {ComponentType.FULL}:
        layers = {layer: layer for layer in range(pool.layer_num)}
        if kind is MHATokenToKVPool:
            return [_mha(PoolName.KV, pool, layers, page_size)]
        if kind is MLATokenToKVPool:
            return [_mla(pool, layers, page_size)]
    if kind is SWAKVPool and components == {ComponentType.FULL, ComponentType.SWA}:
        full, swa = _swa_layer_mappings(pool)
        return [
            _mha(PoolName.KV, pool.full_kv_pool, full, page_size),
            _mha(PoolName.SWA, pool.swa_kv_pool, swa, page_size),
        ]
    if (
        kind is HybridLinearKVPool
        and components == {ComponentType.FULL, ComponentType.MAMBA}
        and type(pool.full_kv_pool) is MHATokenToKVPool
    ):
        layers = _stage_local_layer_mapping(pool.full_attention_layer_id_mapping, pool.start_layer)
        return [
            _mha(PoolName.KV, pool.full_kv_pool, layers, page_size),
            _mamba_device_pool_entry(params.req_to_token_pool, pool.start_layer),
        ]
    return []


def _mha(name: PoolName, pool: Any, layers: dict[int, int], page_size: int) -> DevicePoolEntry:
    if type(pool) is not MHATokenToKVPool:
        raise ValueError(f"the external linker does not support {type(pool).__name__} for {name}")
    layout = pool.get_device_pool_infos()[0].buffer_info.buffers.layout
    if layout != KVBufferLayout.NHD:
        raise ValueError(f"the external linker does not support KV in the layout {layout.value}")
    return _mha_device_pool_entry(name, pool, layers, page_size)


def _mla(pool: Any, layers: dict[int, int], page_size: int) -> DevicePoolEntry:
    if pool.kv_scale_buffer is not None or pool.layer_shard_enabled:
        raise ValueError("the external linker does not support FP4 or sharded layers of MLA")
    return DevicePoolEntry(
        name=PoolName.KV,
        indices_from_pool=PoolName.KV,
        device_pool=pool,
        components=[pool.kv_buffer],
        layer_mapping=layers,
        page_size=page_size,
        rows_are_pages=False,
    )


def _draft(pool: Any, page_size: int) -> DevicePoolEntry:
    """The draft model's pool has the indices of the KV pool. The draft reads it when all layers
    have arrived, so each of its layers travels with the target's layer of the same number."""
    if type(pool) is not MHATokenToKVPool or pool.page_size != page_size:
        raise ValueError(
            f"the external linker does not support a draft model with {type(pool).__name__} and "
            f"pages of {pool.page_size} tokens"
        )
    layers = {layer: layer for layer in range(pool.layer_num)}
    return _mha_device_pool_entry(PoolName.DRAFT, pool, layers, page_size, PoolName.KV)
