"""DeepSeek V4 has six device pools and no KV pool. SGLang's own builder describes them."""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import pages
import pytest
import torch
from controller_node import Rank, Shape, as_rank
from harness.waiting import eventually
from linker_node import launch
from sglang.srt.mem_cache.hicache_storage import PoolHitPolicy, PoolName, PoolTransfer
from sglang.srt.mem_cache.unified_cache.component_type import ComponentType

PAGE = 256


@pytest.fixture
def make_pools(nodes: Any, patient_lookups: None) -> Iterator[Any]:
    """`make_pools(0)`: a linker beside daemon 0, over pools of random bytes."""
    from sglang.srt.mem_cache.deepseek_v4_memory_pool import DeepSeekV4TokenToKVPool

    from peercache_client.sglang.linker import PeerCacheLinker

    with ExitStack() as stack:

        def make(place: int, rank: Rank) -> Any:
            args = launch(nodes[place].socket_path, Shape(page_size=PAGE), model="deepseek v4")
            with as_rank(rank):
                pool = DeepSeekV4TokenToKVPool(
                    max_num_reqs=4,
                    swa_size=8 * PAGE,
                    c4_size=1024,
                    c128_size=64,
                    c4_state_pool_size=64,
                    c128_state_pool_size=64,
                    page_size=PAGE,
                    swa_page_size=PAGE,
                    dtype=torch.float8_e4m3fn,
                    c4_state_dtype=torch.float32,
                    c128_state_dtype=torch.float32,
                    qk_nope_head_dim=448,
                    qk_rope_head_dim=64,
                    indexer_head_dim=128,
                    layer_num=4,
                    device="cpu",
                    enable_memory_saver=False,
                    compression_ratios=[0, 4, 128, 4],
                    start_layer=0,
                    end_layer=4,
                )
                params = SimpleNamespace(
                    token_to_kv_pool_allocator=SimpleNamespace(get_kvcache=lambda: pool),
                    page_size=PAGE,
                    mtp_draft_device_pools=(),
                    sidecar_draft_device_pools=(),
                    attn_cp_cache_group=None,
                )
                linker = PeerCacheLinker(
                    args,
                    params,
                    components={ComponentType.FULL, ComponentType.SWA},
                    extra_config=args.unified_cache_external_linker_config["linker_extra_config"],
                )
            stack.callback(linker.close)
            for entry in linker.pools.values():
                for tensor in entry.kv_buffer:
                    tensor.view(torch.uint8).random_(0, 256)
            return linker

        yield make


def transfers(hashes: list[str], numbers: list[int], window: int) -> list[PoolTransfer]:
    """Of KV, and of the sliding window at its end, which has other pages of the device."""

    def of(name: Any, some: list[str], starts: list[int], policy: PoolHitPolicy) -> PoolTransfer:
        slots = torch.cat([torch.arange(PAGE) + start * PAGE for start in starts])
        return PoolTransfer(name=name, keys=some, device_indices=slots, hit_policy=policy)

    return [
        of(PoolName.KV, hashes, numbers, PoolHitPolicy.ALL_PAGES),
        of(
            PoolName.SWA,
            hashes[-window:],
            [8 - number for number in numbers[-window:]],
            PoolHitPolicy.TRAILING_PAGES,
        ),
    ]


def rows(linker: Any, name: Any, number: int) -> list[Any]:
    return [tensor[number].clone() for tensor in linker.pools[name].kv_buffer]


def test_all_pools_of_a_node_are_stored_and_loaded(make_pools: Any) -> None:
    one, rank_1, other = make_pools(0, Rank(0, 2)), make_pools(0, Rank(1, 2)), make_pools(1, Rank())
    assert len(one.pools) == 6
    assert PoolName.KV not in one.pools
    hashes = pages.hashes("deepseek v4", 5)
    for linker in (one, rank_1):  # of which rank 0 stores
        assert linker.offload(transfers(hashes[:3], [1, 2, 3], 1), session_id="a session")
        eventually(linker.num_completed_offloads)
        assert linker.pop_completed_offload()
    asked = [
        PoolTransfer(name=PoolName.KV, keys=hashes),
        PoolTransfer(name=PoolName.SWA, keys=hashes[-1:], hit_policy=PoolHitPolicy.TRAILING_PAGES),
    ]
    # The window was stored at the end of the node alone.
    assert other.lookup("request", asked) == [3]
    assert other.load("request", transfers(hashes[:3], [4, 1, 7], 1))
    index = other.start_layer_wise_loading()
    other.layer_done_counter.set_consumer(index)
    for layer in range(4):
        other.layer_done_counter.wait_until(layer)
    assert other.finish_layer_wise_loading(index)
    for name, entry in one.pools.items():
        moved = {1: 4, 2: 1, 3: 7} if entry.indices_from_pool == PoolName.KV else {5: 1}
        for source, target in moved.items():
            wanted = rows(one, name, source)
            assert all(map(torch.equal, rows(other, name, target), wanted)), name


def test_a_node_whose_window_cannot_be_stored_is_not_stored(make_pools: Any) -> None:
    one = make_pools(0, Rank())
    hashes = pages.hashes(f"half {time.monotonic()}", 3)
    bad = transfers(hashes, [1, 2, 3], 1)
    bad[1].device_indices = torch.arange(PAGE) + 7  # no page begins there
    assert one.offload(bad)
    eventually(one.num_completed_offloads)
    assert not one.pop_completed_offload()
    asked = [
        PoolTransfer(name=PoolName.KV, keys=hashes),
        PoolTransfer(name=PoolName.SWA, keys=hashes[-1:], hit_policy=PoolHitPolicy.TRAILING_PAGES),
    ]
    assert one.lookup("request", asked) == []
