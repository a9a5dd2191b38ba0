"""Pages through SGLang's controller, host pools and dynamic factory, from one node to another."""

from typing import Any

import pages
import pytest
import torch
from controller_node import Shape

MHA_LAYOUTS = ["layer_first", "page_first", "page_first_direct", "page_head", "page_unified"]
MLA_LAYOUTS = ["layer_first", "page_first", "page_first_direct", "page_unified"]
SHAPES = {
    **{f"mha {layout}": Shape(layout=layout) for layout in MHA_LAYOUTS},
    **{f"mla {layout}": Shape(kind="mla", layout=layout) for layout in MLA_LAYOUTS},
    "page_unified in head groups": Shape(layout="page_unified", head_groups=2),
    "asymmetric mha page_first": Shape(v_head_dim=16),
    "asymmetric mha page_first_direct": Shape(v_head_dim=16, layout="page_first_direct"),
    "fp8": Shape(dtype=torch.float8_e4m3fn, kv_cache_dtype="fp8_e4m3"),
    "page size 1": Shape(page_size=1),
}


@pytest.mark.parametrize("name", SHAPES)
def test_a_page_that_one_node_sets_another_gets(name: str, make_node: Any) -> None:
    shape = SHAPES[name]
    one, other = make_node(0, shape, model=name), make_node(1, shape, model=name)
    hashes = pages.hashes(name, 6)
    source = pages.alloc(one.pool, 6)
    written = pages_of(one.pool, source, name)

    assert one.backend.batch_set_v1(hashes, source) == [True] * 6
    assert other.backend.batch_exists([*hashes, "0" * 64]) == 6
    # Other places than on the first node, and in another order.
    target = pages.alloc(other.pool, 8)[2 * shape.page_size :].view(6, -1).flip(0).flatten()
    assert other.backend.batch_get_v1(hashes, target) == [True] * 6
    assert bytes_of(other.pool, target) == written


def pages_of(pool: Any, indices: Any, seed: str) -> list[Any]:
    """Like `pages.fill`, but also for pools that cannot flatten a page (asymmetric MHA)."""
    if pool.head_dim == pool.v_head_dim if hasattr(pool, "v_head_dim") else True:
        return pages.fill(pool, indices, seed)
    chosen = torch.Generator().manual_seed(1)
    for buffer in (pool.k_buffer, pool.v_buffer):
        buffer.copy_(torch.randn(buffer.shape, generator=chosen).to(buffer.dtype))
    return bytes_of(pool, indices)


def bytes_of(pool: Any, indices: Any) -> list[Any]:
    if pool.head_dim == pool.v_head_dim if hasattr(pool, "v_head_dim") else True:
        return pages.read(pool, indices)
    found = []
    for index in pages.heads(pool, indices):
        at = (
            slice(index, index + pool.page_size)
            if pool.layout == "page_first"
            else index // pool.page_size
        )
        found.append((pool.k_buffer[at].tolist(), pool.v_buffer[at].tolist()))
    return found
