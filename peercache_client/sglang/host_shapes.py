"""From a device pool to the host pool that HiCache would make of it.

The tag in our keys is made of a host pool's attributes. The linker has no host pool, so it computes
the attributes, and its pages get the same tag (tests/sglang/test_linker_identity.py compares them).
A pool that HiCache stores in another order, or not at all, gets a form of its own in the tag.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

from sglang.srt.mem_cache.hicache_storage import PoolName
from sglang.srt.mem_cache.memory_pool import MambaPool, MHATokenToKVPool, MLATokenToKVPool


class HostShape(NamedTuple):
    pieces: Sequence[Sequence[Any]]  # the layers' device tensors that make up each piece of a page
    attributes: SimpleNamespace  # of the host pool
    pool_class: str  # of the host pool
    as_hicache: bool  # whether HiCache's pages have the same bytes


def host_shape(entry: Any, layout: str) -> HostShape:
    """`entry`: SGLang's DevicePoolEntry; `layout`: that of HiCache's host pools."""
    pool = entry.device_pool
    shape = None
    if type(pool) is MHATokenToKVPool:
        shape = _mha(pool, layout, entry.page_size)
    elif type(pool) is MLATokenToKVPool:
        shape = _mla(pool, layout, entry.page_size)
    elif entry.name == PoolName.MAMBA and isinstance(pool, MambaPool):
        shape = _mamba(pool, layout)
    if shape is not None and _has_exactly(entry, shape.pieces):
        return shape
    return _own(entry)


def _mha(pool: Any, layout: str, page_size: int) -> HostShape:
    info = pool.get_device_pool_infos()[0].buffer_info
    layers = len(info.buffers.k)
    attributes = SimpleNamespace(
        **_common(pool, layout, page_size, info.dtype),
        layer_num=layers,
        target_layer_num=layers,
        head_num=info.head_num,
        head_dim=info.head_dim,
        v_head_dim=info.v_head_dim,
    )
    equal = info.head_dim == info.v_head_dim
    name = "MHATokenToKVPoolHost" if equal else "AsymmetricMHATokenToKVPoolHost"
    return HostShape((info.buffers.k, info.buffers.v), attributes, name, True)


def _mla(pool: Any, layout: str, page_size: int) -> HostShape:
    info = pool.get_device_pool_infos()[0].buffer_info
    attributes = SimpleNamespace(
        **_common(pool, layout, page_size, info.dtype),
        layer_num=pool.layer_num,
        target_layer_num=pool.layer_num,
        kv_cache_dim=info.kv_cache_dim,
        kv_lora_rank=info.kv_lora_rank,
        qk_rope_head_dim=info.qk_rope_head_dim,
    )
    return HostShape((info.buffers,), attributes, "MLATokenToKVPoolHost", True)


def _common(pool: Any, layout: str, page_size: int, dtype: Any) -> dict[str, Any]:
    return {
        "layout": layout,
        "dtype": dtype,
        "page_size": page_size,
        "logical_page_size": page_size,
        "start_layer": pool.start_layer,
        "end_layer": pool.end_layer,
    }


def _mamba(pool: Any, layout: str) -> HostShape | None:
    info = pool.get_device_pool_infos()[0].buffer_info
    if info.extra_checkpoint_buffers:
        return None
    attributes = SimpleNamespace(
        layout=layout,
        page_size=1,
        logical_page_size=1,
        dtype=info.conv[0].dtype,
        num_mamba_layers=info.temporal.shape[0],
        temporal_dtype=info.temporal.dtype,
        conv_dtype=info.conv[0].dtype,
        conv_state_shapes=[state.shape[2:] for state in info.conv],
        temporal_state_shape=info.temporal.shape[2:],
    )
    # HiCache, too, leaves out the temporal state of a model that has only convolutions.
    pieces = [state.unbind(0) for state in (info.temporal, *info.conv) if state.numel()]
    return HostShape(pieces, attributes, "MambaPoolHost", True)


def _own(entry: Any) -> HostShape:
    tensors = [(tuple(each.shape[1:]), str(each.dtype)) for each in entry.kv_buffer]
    attributes = SimpleNamespace(
        dtype=entry.kv_buffer[0].dtype,
        page_size=entry.page_size,
        storage_format_tag=f"{tensors} {sorted(entry.layer_mapping.items())}",
    )
    return HostShape(entry.components, attributes, type(entry.device_pool).__name__, False)


def _has_exactly(entry: Any, pieces: Sequence[Sequence[Any]]) -> bool:
    """Whether the entry has these tensors in this order, and no draft's layers among them."""
    expected = [tensor.data_ptr() for piece in pieces for tensor in piece]
    return expected == [tensor.data_ptr() for tensor in entry.kv_buffer]
