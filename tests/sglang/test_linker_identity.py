"""The linker's keys are those of HiCache wherever the bytes are the same, and others elsewhere."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from controller_node import Rank, Shape, as_rank, device_pool, publish
from linker_node import launch
from sglang.srt.mem_cache.hicache_storage import PoolName
from sglang.srt.mem_cache.hybrid_cache import hybrid_pool_assembler as assembler
from sglang.srt.mem_cache.hybrid_cache.linker_pool_assembler import DevicePoolEntry
from sglang.test.kits.unified_radix_cache.config import CONFIGS, CacheConfig

from peercache_client import Client
from peercache_client.identity import Topology
from peercache_client.sglang import pools
from peercache_client.sglang.device_forms import DeviceForm
from peercache_client.sglang.device_pools import device_pools, is_replicated
from peercache_client.sglang.placement import Sharing

LAYOUTS = ("page_first", "page_first_direct")
SHAPES = {
    "mha": Shape(),
    "mha asymmetric": Shape(v_head_dim=16),
    "mha fp8": Shape(dtype=torch.float8_e4m3fn, kv_cache_dtype="fp8_e4m3"),
    "mha pages of one token": Shape(page_size=1),
    "mla": Shape(kind="mla"),
    "mla fp8": Shape(kind="mla", dtype=torch.float8_e4m3fn, kv_cache_dtype="fp8_e4m3"),
}


def topology(shape: Any, rank: Rank) -> Topology:
    return Topology(
        *(rank.tp_rank, rank.tp_size, rank.pp_rank, rank.pp_size, 0, 1, 0, 1),
        replicated=getattr(shape, "kind", "") == "mla",
        tp_lcm_size=0,
    )


def same(form: DeviceForm, host: Any, name: Any, ranks: Topology) -> bool:
    """Whether the backend has the same pieces under the same keys for the host pool."""
    host.pin_memory = False
    client = Client("/nowhere", "identity")
    theirs: Any = pools.make_form(name, host, ranks, Sharing(client, ""), zero_copy=True)
    client.close()
    assert form.sizes_bytes == theirs.sizes_bytes
    assert form.indices_per_page == theirs.indices_per_page
    return bool(form.suffixes == theirs.suffixes)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("rank", [Rank(), Rank(1, 2), Rank(1, 4, 1, 2)], ids=str)
def test_tags_of_plain_pools_are_those_of_their_host_pools(
    name: str, layout: str, rank: Rank
) -> None:
    shape = SHAPES[name].but(layout=layout)
    publish(shape, {})
    with as_rank(rank):
        pool = device_pool(shape)
        host = assembler.build_kv_host_pool(kv_pool=pool, page_size=shape.page_size)
        [entry] = device_pools(params_of(pool, shape.page_size), components("FULL")).entries
    ranks = topology(shape, rank)
    assert same(DeviceForm(entry, ranks, layout), host, PoolName.KV, ranks)
    other = LAYOUTS[1 - LAYOUTS.index(layout)]
    assert not same(DeviceForm(entry, ranks, other), host, PoolName.KV, ranks)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    "cfg", [each for each in CONFIGS if len(each.components) > 1], ids=lambda cfg: str(cfg.label)
)
def test_tags_of_windows_and_states_are_those_of_their_host_pools(
    cfg: CacheConfig, layout: str
) -> None:
    from linker_node import _of_kit

    cache, allocator, requests = _of_kit(cfg)
    publish(Shape(page_size=cfg.page_size, layout=layout), {})
    pool = allocator.get_kvcache()
    group = device_pools(cache.cache_init_params, set(cache.components))
    ranks = topology(cfg, Rank())
    hosts = {PoolName.KV: _host(pool.full_kv_pool, cfg)}
    if cfg.has_swa:
        hosts[PoolName.SWA] = _host(pool.swa_kv_pool, cfg)
    if cfg.has_mamba:
        mamba = requests.mamba_pool
        [info] = mamba.get_device_pool_infos()
        hosts[PoolName.MAMBA] = assembler.build_mamba_host_pool(
            mamba, info, host_size=0, layout=layout
        )
    assert hosts.keys() == group.entry_map.keys()
    for name, host in hosts.items():
        assert same(DeviceForm(group.entry_map[name], ranks, layout), host, name, ranks)


def test_mla_beside_mamba_is_the_same_on_all_ranks_and_the_states_are_not() -> None:
    """So rank 1 stores only its states, and finds the KV of rank 0, also that of a HiCache node."""
    from linker_node import _of_kit
    from sglang.srt.mem_cache.memory_pool import HybridLinearKVPool

    [cfg] = [each for each in CONFIGS if each.label == "FULL_MAMBA_ps4"]
    cache, _, requests = _of_kit(cfg)
    publish(Shape(page_size=cfg.page_size), {})
    pool = HybridLinearKVPool(
        size=cfg.kv_size,
        dtype=cfg.dtype,
        page_size=cfg.page_size,
        head_num=1,
        head_dim=64,
        full_attention_layer_ids=list(cfg.full_attention_layer_ids),
        device="cpu",
        mamba_pool=requests.mamba_pool,
        use_mla=True,
        kv_lora_rank=48,
        qk_rope_head_dim=16,
    )
    params = cache.cache_init_params
    params.token_to_kv_pool_allocator = SimpleNamespace(get_kvcache=lambda: pool)
    assert is_replicated(params)
    ranks = topology(Shape(kind="mla"), Rank(1, 2))
    entries = device_pools(params, set(cache.components)).entry_map
    kv, states = (
        DeviceForm(entries[name], ranks, "page_first") for name in (PoolName.KV, PoolName.MAMBA)
    )
    assert kv.shared_by_tp_ranks
    assert not states.shared_by_tp_ranks
    assert same(kv, _host(pool.full_kv_pool, cfg), PoolName.KV, ranks)


def _host(pool: Any, cfg: CacheConfig) -> Any:
    return assembler.build_kv_host_pool(kv_pool=pool, page_size=cfg.page_size)


def entry_of(tensors: list[Any], layers: dict[int, Any], **options: Any) -> DevicePoolEntry:
    given = {
        "name": PoolName.DEEPSEEK_V4_C4,
        "indices_from_pool": PoolName.KV,
        "device_pool": SimpleNamespace(),
        "components": [tensors],
        "layer_mapping": layers,
        "page_size": 64,
        "rows_are_pages": True,
        **options,
    }
    return DevicePoolEntry(**given)


def test_other_pools_have_tags_of_their_own() -> None:
    """The tag covers their tensors, dtypes and layers."""
    launch("/nowhere", Shape(), model="own")  # type: ignore[arg-type]
    ranks = topology(Shape(kind="mla"), Rank())
    four, six = (torch.zeros(9, width, dtype=torch.uint8) for width in (4, 6))
    forms = [
        entry_of([four, six], {0: 0, 2: 1}),
        entry_of([four, six], {0: 0, 1: 1}),
        entry_of([six, four], {0: 0, 2: 1}),
        entry_of([four.view(torch.int8), six], {0: 0, 2: 1}),
        entry_of([four, six], {0: 0, 2: 1}, page_size=128),
        entry_of([four, six], {0: 0, 2: 1}, name=PoolName.DEEPSEEK_V4_C128),
    ]
    tags = {DeviceForm(each, ranks, "page_first").suffixes for each in forms}
    assert len(tags) == len(forms)
    again = DeviceForm(entry_of([four, six], {0: 0, 2: 1}), ranks, "page_first_direct")
    assert again.suffixes in tags  # the layout is that of host pools, which these do not have


def test_a_tensor_of_no_layer_is_refused() -> None:
    """It would never be loaded."""
    launch("/nowhere", Shape(), model="own")  # type: ignore[arg-type]
    tensors = [torch.zeros(9, 4, dtype=torch.uint8) for _ in range(2)]
    with pytest.raises(ValueError, match="1 tensors belong to no layer"):
        DeviceForm(entry_of(tensors, {0: 0}), topology(Shape(), Rank()), "page_first")


def params_of(pool: Any, page_size: int) -> Any:
    return SimpleNamespace(
        token_to_kv_pool_allocator=SimpleNamespace(get_kvcache=lambda: pool),
        page_size=page_size,
        mtp_draft_device_pools=(),
        sidecar_draft_device_pools=(),
    )


def components(*names: str) -> set[Any]:
    from sglang.srt.mem_cache.unified_cache.component_type import ComponentType

    return {ComponentType[name] for name in names}
