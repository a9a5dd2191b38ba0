"""Replaces CUDA, so that SGLang's own cache code runs on a CPU.

It replaces only torchvision and datasets (SGLang and its test kit need a few of their names),
pinning, and the copies between "device" and host pools. Pools, controllers, threads, radix cache,
storage factory and page hash are SGLang's. Call `install` before any import of sglang.
"""

import functools
import importlib.machinery
import logging
import os
import sys
import types
from collections.abc import Sequence
from typing import Any

pinned: list[tuple[int, int]] = []  # address and size of memory that SGLang would have pinned


@functools.cache
def install() -> None:
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    os.environ.pop("SGLANG_USE_CPU_ENGINE", None)
    sys.meta_path.insert(0, _Empty())

    from sglang.srt.mem_cache.base_prefix_cache import MatchResult
    from sglang.srt.mem_cache.pool_host import base, common, mamba, mha, mla

    base.HICACHE_HOST_MEMORY_RESERVE_BYTES = 0  # of this machine's memory, for a server
    common._cuda_host_register = _pin
    for pool in (
        mha.MHATokenToKVPoolHost,
        mha.AsymmetricMHATokenToKVPoolHost,
        mla.MLATokenToKVPoolHost,
    ):
        pool.backup_from_device_all_layer = _backup
        pool.load_to_device_per_layer = _load
    mamba.MambaPoolHost._copy_tensor_all_layers_lf_pf = staticmethod(_backup_states)
    mamba.MambaPoolHost._copy_tensor_pf_lf = staticmethod(_load_states)
    if not hasattr(MatchResult, "device_prefix_len"):  # 0.5.21
        MatchResult.device_prefix_len = property(lambda match: len(match.device_indices))
    logging.getLogger("sglang").setLevel(logging.ERROR)


class _Empty:
    """An empty torchvision and datasets for SGLang. transformers checks for both and must find
    none."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name.partition(".")[0] not in ("torchvision", "datasets") or _asked_by("transformers"):
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)  # type: ignore[arg-type]

    def create_module(self, spec: Any) -> types.ModuleType:
        module = types.ModuleType(spec.name)
        module.__path__ = []
        module.__getattr__ = _any_class  # type: ignore[method-assign]
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        pass


def _asked_by(package: str) -> bool:
    frame = sys._getframe(2)
    while frame is not None:
        if frame.f_globals.get("__name__", "").partition(".")[0] == package:
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


def _any_class(name: str) -> type:
    if name.startswith("__"):
        raise AttributeError(name)
    return type(name, (), {"BICUBIC": 3, "LANCZOS": 1, "BILINEAR": 2, "NEAREST": 0})


def _pin(buffer: Any, granularity_bytes: int | None = None) -> None:
    pinned.append((buffer.data_ptr(), buffer.numel() * buffer.element_size()))


# --- copies between the pools, by indexing; shapes are in SGLang's init_kv_buffer ---------------


def _components(pool: Any, device_pool: Any) -> list[tuple[Any, Sequence[Any]]]:
    """(host buffer, device layers) for K and for V, or for MLA's single buffer."""
    if hasattr(pool, "device_k_buffers"):
        return [
            (pool.k_buffer, pool.device_k_buffers),
            (pool.v_buffer, pool.device_v_buffers),
        ]
    if hasattr(pool, "device_kv_buffers"):
        return [(pool.kv_buffer, pool.device_kv_buffers)]
    names = ("k_buffer", "v_buffer") if hasattr(device_pool, "k_buffer") else ("kv_buffer",)
    return [(getattr(pool, name), getattr(device_pool, name)) for name in names]  # 0.5.21


def _rows(pool: Any, host: Any, layer: int, indices: Any) -> tuple[Any, tuple[Any, ...]]:
    """A view of one layer of the host buffer, and the index of these tokens in it."""
    page, token = indices // pool.page_size, indices % pool.page_size
    if pool.layout == "layer_first":
        return host[layer], (indices,)
    if pool.layout == "page_first":
        return host[:, layer], (indices,)
    if pool.layout == "page_first_direct":
        return host[:, layer], (page, token)
    if pool.layout == "page_head":  # page, head, token, layer, dim
        return host[:, :, :, layer].transpose(1, 2), (page, token)
    raise ValueError(pool.layout)


def _backup(pool: Any, device_pool: Any, host_indices: Any, device_indices: Any, io: str) -> None:
    for host, layers in _components(pool, device_pool):
        for number, layer in enumerate(layers):
            view, at = _rows(pool, host, number, host_indices)
            view[at] = layer[device_indices].reshape(view[at].shape)


def _load(
    pool: Any,
    device_pool: Any,
    host_indices: Any,
    device_indices: Any,
    layer_id: int,
    io: str,
    *,
    is_draft: bool = False,
) -> None:
    for host, layers in _components(pool, device_pool):
        view, at = _rows(pool, host, layer_id, host_indices)
        layers[layer_id][device_indices] = view[at].reshape(layers[layer_id][device_indices].shape)


def _backup_states(
    src_layers: Any, dst: Any, src_indices: Any, dst_indices: Any, num_layers: int, **_: Any
) -> None:
    for layer in range(num_layers):
        dst[dst_indices, layer, 0] = src_layers[layer][src_indices]


def _load_states(
    src: Any, dst: Any, src_indices: Any, dst_indices: Any, layer_id: int, **_: Any
) -> None:
    dst[dst_indices] = src[src_indices, layer_id, 0]
