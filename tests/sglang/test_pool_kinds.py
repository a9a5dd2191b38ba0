"""SGLang's own side pools: Mamba's states, DeepSeek V4's pages, and pools that cannot be shared
in place."""

from types import SimpleNamespace
from typing import Any

import pages
import pytest
import torch
from controller_node import Shape, host_pool, lone_backend
from sglang.srt.mem_cache.hicache_storage import PoolName, PoolTransfer
from sglang.srt.mem_cache.memory_pool_host import DeepSeekV4PagedHostPool
from sglang.srt.mem_cache.pool_host.mamba import MambaPoolHost


def mamba(extra_states: bool = False) -> Any:
    temporal, conv = torch.zeros(2, 8, 4, 16), (torch.zeros(2, 8, 3, 5, dtype=torch.bfloat16),)
    more: dict[str, Any] = {"allocator_type": "shm", "layout": "page_first"}
    try:
        from sglang.srt.mem_cache.device_pool_info import MambaStateBufferInfo
    except ImportError:  # 0.5.21
        states = SimpleNamespace(temporal=temporal, conv=conv)
        info = SimpleNamespace(mamba_cache=states, num_mamba_layers=2, size=8, device="cpu")
    else:
        extra = (torch.zeros(8, 7, dtype=torch.int32),) if extra_states else ()
        info = MambaStateBufferInfo(temporal=temporal, conv=conv, extra_checkpoint_buffers=extra)
        more["device_capacity"] = 8
    pool = MambaPoolHost(info, 2.0, 0, **more)
    pool.pin_memory = False
    return pool


def deepseek(layout: str, layers: int = 3, name: PoolName = PoolName.DEEPSEEK_V4_C4) -> Any:
    pool = DeepSeekV4PagedHostPool(
        name,
        [torch.zeros(8, 96, dtype=torch.uint8) for _ in range(layers)],
        item_bytes=96,
        num_host_pages=16,
        slot_page_size=16,
        layout=layout,
        allocator_type="shm",
        page_aligned_only=True,
    )
    pool.pin_memory = False
    return pool


def without_addresses() -> Any:
    pool = host_pool(Shape(kind="mla"))

    def refuse(indices: Any) -> Any:
        raise NotImplementedError("no addresses")

    pool.get_page_buffer_meta = refuse
    return pool


KINDS: dict[str, tuple[Any, bool]] = {  # its maker, and whether its pages are shared in place
    "mamba": (mamba, True),
    "mamba with extra states": (lambda: mamba(extra_states=True), False),
    "deepseek page_first": (lambda: deepseek("page_first"), True),
    "deepseek layer_first": (lambda: deepseek("layer_first"), True),
    "a pool without addresses": (without_addresses, False),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_side_pool_comes_through(nodes: Any, kind: str) -> None:
    make, in_place = KINDS[kind]
    backends = []
    pools = []
    for node in nodes:
        backends.append(lone_backend(node.socket_path, Shape(), model_name=kind))
        pools.append(make())
        backends[-1].register_mem_host_pool_v2(pools[-1], PoolName.MAMBA)
        assert getattr(backends[-1]._forms[PoolName.MAMBA], "shared", False) is in_place
    hashes = pages.hashes(kind, 4)
    source = pages.alloc(pools[0], 4)
    written = pages.fill(pools[0], source, kind)
    assert len(set(written)) == 4
    ok = {PoolName.MAMBA: [True] * 4}
    moved = PoolTransfer(name=PoolName.MAMBA, host_indices=source, keys=hashes)
    assert backends[0].batch_set_v2([moved]) == ok
    target = pages.alloc(pools[1], 6)[2 * pools[1].page_size :]
    moved = PoolTransfer(name=PoolName.MAMBA, host_indices=target, keys=hashes)
    assert backends[1].batch_get_v2([moved]) == ok
    assert pages.read(pools[1], target) == written
    for backend in backends:
        backend.close()


def test_all_366_deepseek_v4_layer_files_are_registered_and_moved(nodes: Any) -> None:
    """In layer_first, 61 layers of six pools are 366 files, and one call uses all of them."""
    names = [
        PoolName.SWA,
        PoolName.DEEPSEEK_V4_C4,
        PoolName.DEEPSEEK_V4_C4_INDEXER,
        PoolName.DEEPSEEK_V4_C128,
        PoolName.DEEPSEEK_V4_C4_STATE,
        PoolName.DEEPSEEK_V4_C128_STATE,
    ]
    hashes = pages.hashes("files", 4)
    written: dict[Any, list[bytes]] = {}
    for node in nodes:
        backend = lone_backend(node.socket_path, Shape(), model_name="files")
        pools = {name: deepseek("layer_first", 61, name) for name in names}
        moved = []
        for name, pool in pools.items():
            backend.register_mem_host_pool_v2(pool, name)
            moved.append(
                PoolTransfer(name=name, host_indices=pages.alloc(pool, 4), keys=list(hashes))
            )
        assert backend._client.stats()["regions"] == 6 * 61
        ok = {name: [True] * 4 for name in names}
        if not written:
            for each in moved:
                written[each.name] = pages.fill(pools[each.name], each.host_indices, each.name)
            assert backend.batch_set_v2(moved) == ok
        else:
            assert backend.batch_get_v2(moved) == ok
            for each in moved:
                assert pages.read(pools[each.name], each.host_indices) == written[each.name]
        backend.close()
