"""Side pools (v2): a page's data besides its KV, and their effect on the usable prefix."""

from collections.abc import Sequence
from typing import Any

import pages
import pytest
from controller_node import Rank, Shape
from sglang.srt.mem_cache.hicache_storage import PoolHitPolicy, PoolName, PoolTransfer

SHAPE = Shape()
SIDE = Shape(kind="mla", layers=2)  # any pool with other bytes than KV's


@pytest.fixture
def make_pair(make_node: Any) -> Any:
    def make(model: str, names: Sequence[Any], **options: Any) -> list[Any]:
        sidecars = [(name, SIDE) for name in names]
        return [make_node(i, SHAPE, model=model, sidecars=sidecars, **options) for i in (0, 1)]

    return make


def set_pages(node: Any, name: Any, hashes: Sequence[str]) -> list[bytes]:
    pool = node.pools[name]
    indices = pages.alloc(pool, len(hashes))
    written = pages.fill(pool, indices, (name, hashes))
    if name == PoolName.KV:
        assert node.backend.batch_set_v1(hashes, indices) == [True] * len(hashes)
    else:
        transfer = PoolTransfer(name=name, host_indices=indices, keys=list(hashes))
        assert node.backend.batch_set_v2([transfer]) == {name: [True] * len(hashes)}
    return written


def transfer(name: Any, policy: PoolHitPolicy, window: int = 0, **more: Any) -> PoolTransfer:
    keys = [""] * window if window else None
    return PoolTransfer(name=name, hit_policy=policy, keys=keys, **more)


def test_pages_of_several_pools_travel_in_one_call(make_pair: Any) -> None:
    names = [PoolName.INDEXER, PoolName.SWA]
    one, other = make_pair("several pools", names)
    hashes = pages.hashes("several pools", 5)
    written = {name: set_pages(one, name, hashes) for name in names}
    wanted = [
        PoolTransfer(name=name, host_indices=pages.alloc(other.pools[name], 5), keys=hashes)
        for name in names
    ]
    assert other.backend.batch_get_v2(wanted) == {name: [True] * 5 for name in names}
    for each in wanted:
        assert pages.read(other.pools[each.name], each.host_indices) == written[each.name]


def test_more_than_128_side_pages_are_set_and_got(make_node: Any) -> None:
    nodes = [
        make_node(i, SHAPE, model="many", sidecars=[(PoolName.SWA, SIDE.but(tokens=4096))])
        for i in (0, 1)
    ]
    hashes = pages.hashes("many", 300)
    written = set_pages(nodes[0], PoolName.SWA, hashes)
    pool = nodes[1].pools[PoolName.SWA]
    wanted = PoolTransfer(name=PoolName.SWA, host_indices=pages.alloc(pool, 300), keys=hashes)
    assert nodes[1].backend.batch_get_v2([wanted]) == {PoolName.SWA: [True] * 300}
    assert pages.read(pool, wanted.host_indices) == written


def test_the_same_hash_in_two_pools_is_two_pages(make_pair: Any) -> None:
    """The pools have the same shape, so that only the name tells them apart."""
    one, other = make_pair("two pools", [PoolName.SWA, PoolName.INDEXER])
    hashes = pages.hashes("two pools", 3)
    set_pages(one, PoolName.KV, hashes)
    set_pages(one, PoolName.SWA, hashes)
    swa = transfer(PoolName.SWA, PoolHitPolicy.ALL_PAGES)
    indexer = transfer(PoolName.INDEXER, PoolHitPolicy.ALL_PAGES)
    assert other.backend.batch_exists_v2(hashes, [swa]).kv_hit_pages == 3
    assert other.backend.batch_exists_v2(hashes, [swa, indexer]).kv_hit_pages == 0


def test_all_pages_cuts_the_prefix_at_its_first_hole(make_pair: Any) -> None:
    one, other = make_pair("all pages", [PoolName.INDEXER])
    hashes = pages.hashes("all pages", 8)
    set_pages(one, PoolName.KV, hashes[:7])
    set_pages(one, PoolName.INDEXER, [*hashes[:4], *hashes[5:]])
    result = other.backend.batch_exists_v2(
        hashes, [transfer(PoolName.INDEXER, PoolHitPolicy.ALL_PAGES)]
    )
    assert result.kv_hit_pages == 4
    assert result.extra_pool_hit_pages == {PoolName.KV: 7, PoolName.INDEXER: 4}
    assert result.restorable_prefix_pages == [1, 2, 3, 4]


def test_trailing_pages_report_every_restorable_prefix_length(make_pair: Any) -> None:
    one, other = make_pair("trailing", [PoolName.MAMBA])
    hashes = pages.hashes("trailing", 8)
    set_pages(one, PoolName.KV, hashes[:6])
    set_pages(one, PoolName.MAMBA, [hashes[1], hashes[4], hashes[7]])
    mamba = transfer(PoolName.MAMBA, PoolHitPolicy.TRAILING_PAGES, window=1)
    result = other.backend.batch_exists_v2(hashes, [mamba])
    assert result.restorable_prefix_pages == [2, 5]
    assert result.kv_hit_pages == 5
    assert result.extra_pool_hit_pages == {PoolName.KV: 6, PoolName.MAMBA: 5}


def test_window_near_the_start_shrinks_to_the_prefix(make_pair: Any) -> None:
    one, other = make_pair("window", [PoolName.SWA])
    hashes = pages.hashes("window", 8)
    set_pages(one, PoolName.KV, hashes)
    set_pages(one, PoolName.SWA, [*hashes[:2], *hashes[4:7]])
    swa = transfer(PoolName.SWA, PoolHitPolicy.TRAILING_PAGES, window=3)
    result = other.backend.batch_exists_v2(hashes, [swa])
    assert result.restorable_prefix_pages == [1, 2, 7]


def test_block_groups_report_their_reach_without_lowering_kv_hits(make_pair: Any) -> None:
    name = PoolName.DEEPSEEK_V4_C4
    one, other = make_pair("groups", [name])
    hashes = pages.hashes("groups", 8)
    set_pages(one, PoolName.KV, hashes)
    groups = pages.hashes("keys of groups", 4)  # two for each block of four pages
    for present, reach in (([], 0), (groups[:1], 0), (groups[:2], 4), (groups, 8)):
        set_pages(one, name, present)
        blocks = PoolTransfer(
            name=name,
            keys=groups,
            hit_policy=PoolHitPolicy.BLOCK_GROUPS,
            block_pages=4,
            group_pages=2,
        )
        result = other.backend.batch_exists_v2(hashes, [blocks])
        assert (result.kv_hit_pages, result.extra_pool_hit_pages[name]) == (8, reach)


def test_mamba_states_are_per_rank_even_with_shared_kv(make_node: Any) -> None:
    sidecars = [(PoolName.MAMBA, SIDE), (PoolName.INDEXER, SIDE)]
    zero, one = (
        make_node(i, Shape(kind="mla"), model="mamba", sidecars=sidecars, rank=Rank(i, 2))
        for i in (0, 1)
    )
    hashes = pages.hashes("mamba", 2)
    for name in (PoolName.KV, PoolName.MAMBA, PoolName.INDEXER):
        set_pages(zero, name, hashes)
    indexer = transfer(PoolName.INDEXER, PoolHitPolicy.ALL_PAGES)
    mamba = transfer(PoolName.MAMBA, PoolHitPolicy.TRAILING_PAGES, window=1)
    assert one.backend.batch_exists_v2(hashes, [indexer]).kv_hit_pages == 2
    assert one.backend.batch_exists_v2(hashes, [indexer, mamba]).kv_hit_pages == 0
    assert zero.backend.batch_exists_v2(hashes, [indexer, mamba]).kv_hit_pages == 2


def test_a_pool_that_comes_late_is_taken(make_pair: Any) -> None:
    from controller_node import host_pool

    one, other = make_pair("late", [])
    for node in (one, other):
        node.pools[PoolName.DRAFT] = host_pool(SIDE)
        node.backend.register_mem_host_pool_v2(node.pools[PoolName.DRAFT], PoolName.DRAFT)
    hashes = pages.hashes("late", 2)
    written = set_pages(one, PoolName.DRAFT, hashes)
    pool = other.pools[PoolName.DRAFT]
    wanted = PoolTransfer(name=PoolName.DRAFT, host_indices=pages.alloc(pool, 2), keys=hashes)
    assert other.backend.batch_get_v2([wanted]) == {PoolName.DRAFT: [True, True]}
    assert pages.read(pool, wanted.host_indices) == written


def test_mismatched_side_pool_transfers_fail_every_page(make_pair: Any) -> None:
    one, _ = make_pair("misfit", [PoolName.SWA])
    hashes = pages.hashes("misfit", 2)
    pool = one.pools[PoolName.SWA]
    short = PoolTransfer(name=PoolName.SWA, host_indices=pages.alloc(pool, 1), keys=hashes)
    missing = PoolTransfer(name=PoolName.SWA, host_indices=None, keys=hashes)
    unknown = PoolTransfer(name=PoolName.DRAFT_SWA, host_indices=pages.alloc(pool, 2), keys=hashes)
    for each in (short, missing, unknown):
        assert one.backend.batch_set_v2([each]) == {each.name: [False] * 2}
        assert one.backend.batch_get_v2([each]) == {each.name: [False] * 2}


def test_logical_anchor_hits_are_decided_by_its_side_pools(nodes: Any) -> None:
    """The KV pool of DeepSeek V4 only numbers pages and has no bytes."""
    from controller_node import host_pool, lone_backend
    from sglang.srt.mem_cache.memory_pool_host import LogicalHostPool

    backend = lone_backend(nodes[0].socket_path, SHAPE, is_mla_model=True, model_name="v4")
    anchor = LogicalHostPool(512, 16)
    side = host_pool(SIDE)
    backend.register_mem_pool_host(anchor)
    backend.register_mem_host_pool_v2(anchor, PoolName.KV)
    backend.register_mem_host_pool_v2(side, PoolName.DEEPSEEK_V4_C4)
    hashes = pages.hashes("anchor", 4)
    room = anchor.alloc(64)
    assert backend.batch_set_v1(hashes, room) == [True] * 4
    assert backend.batch_get_v1(hashes, room) == [True] * 4
    assert backend.batch_exists(hashes) == 4
    c4 = transfer(PoolName.DEEPSEEK_V4_C4, PoolHitPolicy.ALL_PAGES)
    assert backend.batch_exists_v2(hashes, [c4]).kv_hit_pages == 0
    indices = pages.alloc(side, 3)
    pages.fill(side, indices, "anchor")
    moved = PoolTransfer(name=PoolName.DEEPSEEK_V4_C4, host_indices=indices, keys=hashes[:3])
    assert backend.batch_set_v2([moved]) == {PoolName.DEEPSEEK_V4_C4: [True] * 3}
    assert backend.batch_exists_v2(hashes, [c4]).kv_hit_pages == 3
    backend.close()


def test_the_controller_moves_side_pools_with_their_pages(make_pair: Any) -> None:
    """Side pages are written before the KV, and read per KV batch (indexer) or last (Mamba)."""
    one, other = make_pair("controller side", [PoolName.INDEXER, PoolName.MAMBA])
    tokens = pages.tokens("controller side", 6 * 16)
    source = pages.alloc(one.pool, 6)
    kv = pages.fill(one.pool, source, "kv")
    indexer = pages.fill(one.pools[PoolName.INDEXER], source, "indexer")
    state = pages.alloc(one.pools[PoolName.MAMBA], 1)
    mamba = pages.fill(one.pools[PoolName.MAMBA], state, "mamba")
    last = one.controller.get_hash_str(tokens, None, page_size=16)[-1]
    operation = one.backup(
        tokens,
        source,
        extra_pools=[
            PoolTransfer(name=PoolName.INDEXER, indices_from_pool=PoolName.KV),
            PoolTransfer(
                name=PoolName.MAMBA,
                host_indices=state,
                keys=[last],
                hit_policy=PoolHitPolicy.TRAILING_PAGES,
            ),
        ],
    )
    assert operation.completed_tokens == len(tokens)

    wanted = [
        PoolTransfer(name=PoolName.INDEXER, indices_from_pool=PoolName.KV),
        PoolTransfer(name=PoolName.MAMBA, keys=[last], hit_policy=PoolHitPolicy.TRAILING_PAGES),
    ]
    got = other.prefetch(tokens, extra_pools=wanted)
    assert got.completed_tokens == len(tokens)
    assert pages.read(other.pool, got.host_indices) == kv
    assert pages.read(other.pools[PoolName.INDEXER], got.host_indices) == indexer
    assert pages.read(other.pools[PoolName.MAMBA], wanted[1].host_indices) == mamba
