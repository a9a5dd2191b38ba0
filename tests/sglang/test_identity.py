"""Nodes share pages only if they may. A field left out of the keys would cause wrong tokens."""

from typing import Any

import pages
import pytest
import torch
from controller_node import Rank, Shape, host_pool, lone_backend

from peercache_client import notes

BASE: dict[str, Any] = {"shape": Shape(), "model": "identity", "extra": {}}
FP8 = Shape(dtype=torch.float8_e4m3fn, kv_cache_dtype="fp8_e4m3")
MLA = Shape(kind="mla")
# SGLang splits a page's tokens over ranks for MLA only.
DCP = {"is_mla_model": True, "tp_size": 2, "dcp_size": 2, "logical_page_size": 32}


def node_of(make_node: Any, place: int, given: dict[str, Any]) -> Any:
    extra = given.pop("extra", {})
    shape = given.pop("shape")
    return make_node(place, shape, **given, **extra)


def shares(make_node: Any, one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether the second node finds the first one's pages. If so, checks that the bytes match."""
    first = node_of(make_node, 0, {**BASE, **one})
    second = node_of(make_node, 1, {**BASE, **other})
    hashes = pages.hashes(repr((one, other)), 3)
    source = pages.alloc(first.pool, 3)
    written = pages.fill(first.pool, source, "identity")
    assert first.backend.batch_set_v1(hashes, source) == [True] * 3
    target = pages.alloc(second.pool, 3)
    before = pages.read(second.pool, target)
    found = second.backend.batch_exists(hashes)
    got = second.backend.batch_get_v1(hashes, target)
    assert found in (0, 3)
    assert got == [found == 3] * 3
    assert pages.read(second.pool, target) == (written if found else before)
    return bool(found)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({}, {"model": "another"}),
        ({}, {"extra": {"model_revision": "2"}}),
        ({}, {"extra": {"namespace": "staging"}}),
        ({}, {"extra": {"tenant": "one"}}),
        ({"extra": {"tenant": "one"}}, {"extra": {"tenant": "two"}}),
        ({}, {"shape": Shape(dtype=torch.float16)}),
        ({"shape": FP8}, {"shape": Shape(dtype=torch.float8_e5m2, kv_cache_dtype="fp8_e5m2")}),
        ({}, {"shape": Shape(layout="page_first_direct")}),
        ({}, {"shape": Shape(layout="page_head")}),
        ({"shape": MLA}, {"shape": MLA.but(layout="page_first_direct")}),
        ({}, {"shape": Shape(layers=6, heads=2)}),
        ({}, {"shape": Shape(heads=2, head_dim=64, v_head_dim=64)}),
        ({}, {"shape": Shape(page_size=32, heads=2)}),
        ({"rank": Rank(0, 2)}, {"rank": Rank(1, 2)}),
        ({"rank": Rank(0, 1)}, {"rank": Rank(0, 2)}),
        ({"rank": Rank(0, 2)}, {"rank": Rank(0, 4)}),
        ({"rank": Rank(pp_size=2)}, {"rank": Rank(pp_rank=1, pp_size=2)}),
        ({"rank": Rank()}, {"rank": Rank(pp_size=2)}),
        ({"shape": MLA, "rank": Rank(pp_size=2)}, {"shape": MLA, "rank": Rank(0, 1, 1, 2)}),
    ],
    ids=str,
)
def test_nodes_that_differ_never_meet(
    make_node: Any, one: dict[str, Any], other: dict[str, Any]
) -> None:
    assert not shares(make_node, one, other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({}, {}),
        ({"shape": FP8}, {"shape": FP8}),
        ({"rank": Rank(1, 2)}, {"rank": Rank(1, 2)}),
        # All TP ranks and all TP sizes have the same MLA KV.
        ({"shape": MLA, "rank": Rank(0, 2)}, {"shape": MLA, "rank": Rank(1, 2)}),
        ({"shape": MLA, "rank": Rank(0, 1)}, {"shape": MLA, "rank": Rank(3, 4)}),
        ({"extra": {"tenant": "one"}}, {"extra": {"tenant": "one"}}),
        ({}, {"shape": Shape(tokens=512)}),
        ({"extra": {"timeout_s": 1}}, {"extra": {"timeout_s": 2}}),
    ],
    ids=str,
)
def test_nodes_that_may_share_do(
    make_node: Any, one: dict[str, Any], other: dict[str, Any]
) -> None:
    assert shares(make_node, one, other)


def test_tp_2_and_tp_4_share_heads(make_node: Any) -> None:
    """The pages of two ranks of TP 4 are one page of a rank of TP 2, and the other way round."""
    options: dict[str, Any] = {"model": "heads", "tp_lcm_size": 4}
    shape = Shape(layout="page_head", heads=4)
    wide = make_node(0, shape, rank=Rank(1, 2), **options)  # heads 4 to 7 of 8
    narrow = [make_node(1, shape.but(heads=2), rank=Rank(rank, 4), **options) for rank in range(4)]
    hashes = pages.hashes("heads", 3)
    source = pages.alloc(wide.pool, 3)
    pages.fill(wide.pool, source, "heads")
    assert wide.backend.batch_set_v1(hashes, source) == [True] * 3
    assert [node.backend.batch_exists(hashes) for node in narrow] == [0, 0, 3, 3]
    for node, heads in ((narrow[2], slice(0, 2)), (narrow[3], slice(2, 4))):
        target = pages.alloc(node.pool, 3)
        assert node.backend.batch_get_v1(hashes, target) == [True] * 3
        for page, other in zip(source[::16] // 16, target[::16] // 16, strict=True):
            # (K and V, page, head, token, layer, dim); as integers, since random floats may be NaN
            written = wide.pool.kv_buffer[:, page, heads].view(torch.int16)
            assert torch.equal(written, node.pool.kv_buffer[:, other].view(torch.int16))

    # Rank 0 of two reads the pages that ranks 0 and 1 of four have set.
    wide_0 = make_node(0, shape, rank=Rank(0, 2), **options)
    for node in narrow[:2]:
        pages.fill(node.pool, target := pages.alloc(node.pool, 3), node)
        assert node.backend.batch_set_v1(hashes, target) == [True] * 3
    assert wide_0.backend.batch_get_v1(hashes, pages.alloc(wide_0.pool, 3)) == [True] * 3


def test_ranks_with_indivisible_heads_share_only_with_equal_ranks(
    make_node: Any, caplog: Any
) -> None:
    shape = Shape(layout="page_head", heads=1)
    options: dict[str, Any] = {"model": "one head", "tp_lcm_size": 4}
    one = make_node(0, shape, rank=Rank(0, 2), **options)
    notes.flush()
    assert "cannot be cut" in caplog.text
    four = make_node(1, shape, rank=Rank(0, 4), **options)
    like = make_node(1, shape, rank=Rank(0, 2), **options)
    hashes = pages.hashes("one head", 2)
    source = pages.alloc(one.pool, 2)
    pages.fill(one.pool, source, "one head")
    assert one.backend.batch_set_v1(hashes, source) == [True] * 2
    assert four.backend.batch_exists(hashes) == 0
    assert like.backend.batch_exists(hashes) == 2


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ({"dp_rank": 0}, {"dp_rank": 1}, True),
        ({"attn_cp_size": 2}, {"attn_cp_size": 2, "attn_cp_rank": 1}, False),
        ({}, {"attn_cp_size": 2}, False),
        (DCP, {**DCP, "tp_rank": 1, "dcp_rank": 1}, False),
        ({"is_mla_model": True, "tp_size": 2}, DCP, False),
        (DCP, {**DCP, "tp_size": 4}, False),  # the TP size decides the tokens of a rank
        (DCP, DCP, True),
        ({"model_name": "a/b"}, {"model_name": "a%2Fb"}, False),
        ({"model_name": "m" * 2000}, {"model_name": "m" * 2001}, False),
        ({"model_name": "m" * 2000}, {"model_name": "m" * 2000}, True),
    ],
    ids=str,
)
def test_ranks_of_data_and_context_parallelism(
    nodes: Any, one: dict[str, Any], other: dict[str, Any], same: bool
) -> None:
    pool = None
    backends = []
    shape = MLA if one.get("is_mla_model") else Shape()
    for place, config in enumerate((one, other)):
        backends.append(lone_backend(nodes[place].socket_path, shape, **config))
        pool = pool or host_pool(shape)
        backends[-1].register_mem_pool_host(pool)
    hashes = pages.hashes(repr((one, other)), 2)
    source = pages.alloc(pool, 2)
    pages.fill(pool, source, "lone")
    assert backends[0].batch_set_v1(hashes, source) == [True] * 2
    assert backends[1].batch_exists(hashes) == (2 if same else 0)
    for backend in backends:
        backend.close()


def test_a_backend_that_only_stores_finds_nothing(make_node: Any) -> None:
    """So it computes all pages, and the daemon compares their bytes with those of others."""
    plain = node_of(make_node, 0, {**BASE})
    canary = node_of(make_node, 1, {**BASE, "extra": {"stores_only": True}})
    hashes = pages.hashes("canary", 3)
    source = pages.alloc(canary.pool, 3)
    pages.fill(canary.pool, source, "identity")
    assert canary.backend.batch_set_v1(hashes, source) == [True] * 3
    assert canary.backend.batch_exists(hashes) == 0
    assert canary.backend.batch_exists_v2(hashes).kv_hit_pages == 0
    assert plain.backend.batch_exists(hashes) == 3


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("namespce", "x", "did you mean 'namespace'"),
        ("allocater", "shm", "did you mean 'allocator'"),
        ("timeout_s", 60, "at most 8 seconds"),
        ("tenant", 7, "printable text"),
        ("stores_only", "yes", "true or false"),
    ],
)
def test_invalid_config_fails_the_start_with_a_hint(
    make_node: Any, key: str, value: object, says: str
) -> None:
    with pytest.raises(ValueError, match=says):
        make_node(0, Shape(), **{key: value})
