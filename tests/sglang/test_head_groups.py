"""TP sizes share pages in SGLang's layout page_unified, head group by head group."""

from collections import defaultdict
from pathlib import Path
from typing import Any

import pages
import pytest
import torch
from controller_node import Rank, Shape, host_pool, lone_backend
from sglang.srt.mem_cache.hicache_storage import PoolName

LAYERS, PAGE_SIZE, DIM = 3, 16, 32
PAGES = 3


def shape_of(heads: int, tp_size: int, group: int) -> Shape:
    """The host pool of a rank of a model with this number of heads, stored in groups of heads. If
    there are more ranks than heads, each rank has one, and others have it, too."""
    local = max(1, heads // tp_size)
    return Shape(layout="page_unified", heads=local, head_groups=local // group)


def heads_of(heads: int, tp_rank: int, tp_size: int) -> range:
    """The heads of a rank, by SGLang's rule (`QKVParallelLinear`)."""
    if tp_size <= heads:
        local = heads // tp_size
        return range(tp_rank * local, (tp_rank + 1) * local)
    return range(tp_rank // (tp_size // heads), tp_rank // (tp_size // heads) + 1)


def whole_kv(heads: int) -> torch.Tensor:
    """The KV of all heads: page, layer, K or V, token, head, dim."""
    chosen = torch.Generator().manual_seed(heads)
    shape = (PAGES, LAYERS, 2, PAGE_SIZE, heads, DIM)
    return torch.randint(-30000, 30000, shape, generator=chosen, dtype=torch.int16)


def of_rank(kv: torch.Tensor, groups: int, heads: range) -> torch.Tensor:
    """These heads in the order of page_unified: page, group, layer, K or V, token, head, dim."""
    part = kv[..., heads.start : heads.stop, :]
    return part.unflatten(4, (groups, -1)).permute(0, 4, 1, 2, 3, 5, 6)


@pytest.mark.parametrize(("writers", "readers"), [(2, 4), (4, 2), (1, 4), (4, 1), (2, 2)])
def test_tp_sizes_read_each_others_heads(make_node: Any, writers: int, readers: int) -> None:
    heads, group = 8, 2
    model = f"{writers} to {readers}"
    hashes = pages.hashes(model, PAGES)
    kv = whole_kv(heads)
    for place, tp_size in ((0, writers), (1, readers)):
        for tp_rank in range(tp_size):
            shape = shape_of(heads, tp_size, group)
            node = make_node(place, shape, rank=Rank(tp_rank, tp_size), model=model)
            assert len(node.backend._forms[PoolName.KV].suffixes) == heads // tp_size // group
            indices = pages.alloc(node.pool, PAGES + 2)[2 * PAGE_SIZE :]
            at = indices[::PAGE_SIZE] // PAGE_SIZE
            right = of_rank(kv, shape.head_groups, heads_of(heads, tp_rank, tp_size))
            buffer = node.pool.kv_buffer.view(torch.int16)
            if place == 0:
                buffer[at] = right
                assert node.backend.batch_set_v1(hashes, indices) == [True] * PAGES
            else:
                assert node.backend.batch_get_v1(hashes, indices) == [True] * PAGES
                assert torch.equal(buffer[at], right)


def test_a_page_is_absent_until_all_its_head_groups_are_there(make_node: Any) -> None:
    """One rank of two has half of what TP 1 wants."""
    shape = shape_of(8, 2, 2)
    half = make_node(0, shape, rank=Rank(1, 2), model="half")
    whole = make_node(1, shape_of(8, 1, 2), model="half")
    hashes = pages.hashes("half", 2)
    source = pages.alloc(half.pool, 2)
    pages.fill(half.pool, source, "half")
    assert half.backend.batch_set_v1(hashes, source) == [True] * 2
    assert whole.backend.batch_exists(hashes) == 0
    assert whole.backend.batch_get_v1(hashes, pages.alloc(whole.pool, 2)) == [False] * 2


def deployments(heads: int) -> list[tuple[int, int, int]]:
    """Each rank of each TP size, with each size of its head groups."""
    return [
        (tp_rank, tp_size, group)
        for tp_size in (1, 2, 4, 8)
        for group in (1, 2, 4)
        if max(1, heads // tp_size) % group == 0
        for tp_rank in range(tp_size)
    ]


def keys_of(heads: int, socket_path: Path) -> dict[tuple[int, int, int], tuple[str, ...]]:
    """The ends of our keys, for each of `deployments`."""
    found = {}
    for tp_rank, tp_size, group in deployments(heads):
        shape = shape_of(heads, tp_size, group).but(tokens=32)
        backend = lone_backend(socket_path, shape, tp_rank=tp_rank, tp_size=tp_size)
        backend.register_mem_pool_host(host_pool(shape))
        found[tp_rank, tp_size, group] = backend._forms[PoolName.KV].suffixes
        backend.close()
    return found


@pytest.mark.parametrize("heads", [2, 4])
def test_equal_keys_mean_equal_heads_and_are_sglangs(tmp_path: Path, heads: int) -> None:
    """With more ranks than heads, ranks have copies of heads. These are kept apart, although some
    have the same bytes: the pool does not say which."""
    from sglang.srt.mem_cache.hicache_key_scheme import plan_unified_kv

    content = defaultdict(set)
    theirs = defaultdict(set)
    ours = defaultdict(set)
    for (tp_rank, tp_size, group), suffixes in keys_of(heads, tmp_path / "no daemon").items():
        local = heads_of(heads, tp_rank, tp_size)
        plan = plan_unified_kv(
            model_id="acme/model",
            dtype="bfloat16",
            page_size=PAGE_SIZE,
            rank_replicated=False,
            local_kv_heads=len(local),
            attn_tp_rank=tp_rank,
            attn_tp_size=tp_size,
            attn_cp_size=1,
            start_layer=0,
            end_layer=LAYERS,
            is_final_stage=True,
            head_group=group,
        )
        assert len(plan.suffixes) == len(suffixes)
        groups = zip(*[iter(local)] * group, strict=True)
        for suffix, their, part in zip(suffixes, plan.suffixes, groups, strict=True):
            content[suffix].add(part)
            theirs[suffix].add(their)
            ours[their].add(suffix)
    assert {len(each) for each in content.values()} == {1}
    assert {len(each) for each in theirs.values()} == {1}
    assert {len(each) for each in ours.values()} == {1}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Shape(layout="page_head"), Shape(layout="page_unified")),
        (Shape(layout="page_unified", head_groups=1), Shape(layout="page_unified", head_groups=2)),
        (
            Shape(layout="page_unified", head_groups=2),
            Shape(layout="page_unified", head_groups=2, dtype=torch.float16),
        ),
        (
            Shape(kind="mla", layout="page_first_direct"),
            Shape(kind="mla", layout="page_unified"),
        ),
    ],
    ids=str,
)
def test_pages_of_another_order_are_another_page(make_node: Any, one: Shape, other: Shape) -> None:
    first, second = make_node(0, one, model="order"), make_node(1, other, model="order")
    hashes = pages.hashes(repr((one, other)), 2)
    source = pages.alloc(first.pool, 2)
    pages.fill(first.pool, source, "order")
    assert first.backend.batch_set_v1(hashes, source) == [True] * 2
    assert second.backend.batch_exists(hashes) == 0


def test_mla_pages_of_all_tp_sizes_are_the_same(make_node: Any) -> None:
    shape = Shape(kind="mla", layout="page_unified")
    one = make_node(0, shape, rank=Rank(0, 2), model="mla unified")
    other = make_node(1, shape, rank=Rank(3, 4), model="mla unified")
    hashes = pages.hashes("mla unified", 2)
    source = pages.alloc(one.pool, 2)
    written = pages.fill(one.pool, source, "mla unified")
    assert one.backend.batch_set_v1(hashes, source) == [True] * 2
    target = pages.alloc(other.pool, 2)
    assert other.backend.batch_get_v1(hashes, target) == [True] * 2
    assert pages.read(other.pool, target) == written
