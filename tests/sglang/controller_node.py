"""One scheduler process of SGLang without its scheduler: pools, controller, our backend."""

import itertools
import json
import threading
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

_requests = itertools.count()


@dataclass(frozen=True)
class Shape:
    """The settings from the model and the launch line."""

    kind: str = "mha"
    layout: str = "page_first"
    page_size: int = 16
    layers: int = 3
    heads: int = 4
    head_dim: int = 32
    v_head_dim: int = 32
    tokens: int = 256  # of the device pool; the host pool has twice as many
    dtype: torch.dtype = torch.bfloat16
    kv_cache_dtype: str = "auto"
    head_groups: int = 1  # page_unified: the groups of a rank's heads, each stored by itself

    def but(self, **changes: Any) -> "Shape":
        return replace(self, **changes)


@dataclass(frozen=True)
class Rank:
    tp_rank: int = 0
    tp_size: int = 1
    pp_rank: int = 0
    pp_size: int = 1


def extra_config(socket_path: Path, **more: Any) -> dict[str, Any]:
    return {
        "backend_name": "peercache",
        "module_path": "peercache_client.sglang",
        "class_name": "PeerCacheStorage",
        "interface_v1": 1,
        "allocator": "shm",
        "prefetch_threshold": 1,
        "socket_path": str(socket_path),
        "prefill_tokens_per_s": 0,  # nothing is computed, so all loads would be cut
        **more,
    }


def publish(shape: Shape, extra: dict[str, Any] | str, **more: Any) -> Any:
    """Sets SGLang's process-wide configuration, as its start does. Text `extra` is passed on."""
    from sglang.srt.server_args import ServerArgs, set_global_server_args_for_scheduler

    options = {
        "model_path": "dummy",
        "page_size": shape.page_size,
        "hicache_ratio": 2.0,
        "hicache_io_backend": "direct" if shape.layout == "page_first_direct" else "kernel",
        "hicache_mem_layout": shape.layout,
        "hicache_storage_backend": "dynamic",
        "hicache_storage_backend_extra_config": (
            extra if isinstance(extra, str) else json.dumps(extra)
        ),
        "hicache_storage_prefetch_policy": "wait_complete",
        "kv_cache_dtype": shape.kv_cache_dtype,
        **more,
    }
    args = ServerArgs(**options)
    set_global_server_args_for_scheduler(args)
    return args


@contextmanager
def as_rank(rank: Rank) -> Iterator[None]:
    from sglang.srt.runtime_context import get_parallel

    with get_parallel().override(
        tp_rank=rank.tp_rank,
        tp_size=rank.tp_size,
        attn_tp_rank=rank.tp_rank,
        attn_tp_size=rank.tp_size,
        moe_tp_size=rank.tp_size,
        pp_rank=rank.pp_rank,
        pp_size=rank.pp_size,
    ):
        yield


def device_pool(shape: Shape) -> Any:
    from sglang.srt.mem_cache.memory_pool import MHATokenToKVPool, MLATokenToKVPool

    common: dict[str, Any] = {
        "size": shape.tokens,
        "page_size": shape.page_size,
        "dtype": shape.dtype,
        "layer_num": shape.layers,
        "device": "cpu",
        "enable_memory_saver": False,
    }
    if shape.kind == "mla":
        return MLATokenToKVPool(kv_lora_rank=48, qk_rope_head_dim=16, **common)
    return MHATokenToKVPool(
        head_num=shape.heads, head_dim=shape.head_dim, v_head_dim=shape.v_head_dim, **common
    )


def host_pool(shape: Shape) -> Any:
    """A host pool for the configuration of `publish`. It keeps its device pool alive."""
    from sglang.srt.mem_cache.hybrid_cache import hybrid_pool_assembler as assembler

    device = device_pool(shape)
    with pytest.MonkeyPatch.context() as patch:
        if shape.head_groups > 1:  # no option of 0.5.23 sets it
            made_by = assembler.get_mha_host_pool_cls
            patch.setattr(
                assembler,
                "get_mha_host_pool_cls",
                lambda info: partial(made_by(info), head_group_num=shape.head_groups),
            )
        # 0.5.21 does not find out by itself whether it is MLA.
        made = assembler.build_kv_host_pool(
            kv_pool=device, page_size=shape.page_size, use_mla=shape.kind == "mla"
        )
    made.pin_memory = False  # scratch pages ask for pinning, and torch can pin only with CUDA
    made.kept_device_pool = device
    return made


def lone_backend(socket_path: Path, shape: Shape, **config: Any) -> Any:
    """A backend without a controller, for a HiCacheStorageConfig with these fields."""
    from sglang.srt.mem_cache.hicache_storage import HiCacheStorageConfig

    from peercache_client.sglang import PeerCacheStorage

    extra = extra_config(socket_path)
    publish(shape, extra)
    fields: dict[str, Any] = {
        "tp_rank": 0,
        "tp_size": 1,
        "pp_rank": 0,
        "pp_size": 1,
        "attn_cp_rank": 0,
        "attn_cp_size": 1,
        "is_mla_model": False,
        "enable_storage_metrics": False,
        "is_page_first_layout": shape.layout == "page_first",
        "model_name": "acme/model",
        "extra_config": extra,
        **config,
    }
    return PeerCacheStorage(HiCacheStorageConfig(**fields), {})


class ControllerNode:
    """`HybridCacheController` (or `HiCacheController`) with its threads, attached to a daemon."""

    def __init__(
        self,
        socket_path: Path,
        shape: Shape,
        *,
        rank: Rank | None = None,
        model: str = "acme/model",
        hybrid: bool = True,
        sidecars: Sequence[tuple[Any, Shape]] = (),
        extra_text: str | None = None,
        tp_group: Any = None,
        **extra: Any,
    ) -> None:
        from sglang.srt.managers.cache_controller import HiCacheController
        from sglang.srt.mem_cache.allocator import TokenToKVPoolAllocator
        from sglang.srt.mem_cache.hicache_storage import PoolName
        from sglang.srt.mem_cache.hybrid_cache.hybrid_cache_controller import HybridCacheController
        from sglang.srt.mem_cache.hybrid_cache.hybrid_pool_assembler import build_pool_entry
        from sglang.srt.mem_cache.pool_host import HostPoolGroup

        given = extra_config(socket_path, **extra)
        publish(shape, extra_text or given)
        parsed, threshold, *_ = HybridCacheController.parse_storage_backend_extra_config(
            extra_text or json.dumps(given)
        )
        self.shape = shape
        self.hybrid = hybrid
        with as_rank(rank or Rank()):
            self.pool = host_pool(shape)
            self.pools: dict[str, Any] = {PoolName.KV: self.pool}
            for name, side_shape in sidecars:
                self.pools[name] = host_pool(side_shape)
            self.group = HostPoolGroup(
                [
                    build_pool_entry(
                        name=name,
                        host_pool=pool,
                        device_pool=pool.kept_device_pool,
                        layer_mapping={i: i for i in range(pool.layer_num)},
                        transfer_layer_id_max=pool.layer_num,
                        is_anchor=name == PoolName.KV,
                    )
                    for name, pool in self.pools.items()
                ]
            )
            options: dict[str, Any] = {
                "token_to_kv_pool_allocator": TokenToKVPoolAllocator(
                    size=shape.tokens,
                    dtype=shape.dtype,
                    device="cpu",
                    kvcache=self.pool.kept_device_pool,
                    need_sort=False,
                ),
                "page_size": shape.page_size,
                "tp_group": tp_group,
                "load_cache_event": threading.Event(),
                "io_backend": "direct" if shape.layout == "page_first_direct" else "kernel",
                "write_policy": "write_through",
                "storage_backend": "dynamic",
                "prefetch_threshold": threshold,
                "model_name": model,
                "storage_backend_extra_config": parsed,
            }
            if hybrid:
                self.controller = HybridCacheController(mem_pool_host=self.group, **options)
            else:
                self.controller = HiCacheController(mem_pool_host=self.pool, **options)

    @property
    def backend(self) -> Any:
        return self.controller.storage_backend

    def backup(self, tokens: Any, indices: Any, **options: Any) -> Any:
        """Writes these tokens' host pages through. Returns the operation after SGLang's ack."""
        from sglang.srt.mem_cache.utils import get_hash_str

        hashes = get_hash_str(array("q", tokens), None, page_size=self.shape.page_size)
        self.controller.write_storage(indices, tokens, hashes, **options)
        return self.controller.ack_backup_queue.get(timeout=30)

    def prefetch(self, tokens: Any, *, extra_pools: Any = None) -> Any:
        """Prefetches as for a request: query, make room for the hits, read. Returns the operation
        once all threads are done: `completed_tokens`, `host_indices`, `pool_storage_result`."""
        from sglang.srt.mem_cache.base_prefix_cache import CacheRequestHandle

        controller = self.controller
        name = f"request-{next(_requests)}"
        if self.hybrid:
            handle = CacheRequestHandle(name, 0)
            controller.prefetch(handle, array("q", tokens), None, None, extra_pools=extra_pools)
        else:
            controller.prefetch(name, array("q", tokens), None, None)
        operation = controller.prefetch_hit_queue.get(timeout=30)
        if operation.storage_hit_count == 0:
            operation.completed_tokens = 0
            return operation
        operation.host_indices = self.pool.alloc(operation.storage_hit_count).clone()
        for transfer in extra_pools or ():
            if transfer.indices_from_pool is None:
                pool = self.pools[transfer.name]
                transfer.host_indices = pool.alloc(len(transfer.keys) * pool.page_size).clone()
        controller.prefetch_buffer.put(operation)
        while True:
            ack = controller.ack_prefetch_queue.get(timeout=30)
            if ack.completed_tokens is not None:
                operation.completed_tokens = ack.completed_tokens
            if ack.pool_hits is not None:
                operation.pool_storage_result.update_extra_pool_hit_pages(ack.pool_hits)
            if ack.completed_req:
                return operation

    def close(self) -> None:
        self.controller.detach_storage_backend()

    def __enter__(self) -> "ControllerNode":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
