"""Computed page addresses equal the pool's own. For an irregular pool, the pool is asked."""

from typing import Any

import pytest
import torch
from controller_node import Shape, extra_config, host_pool, publish

from peercache_client.sglang.page_addresses import PageAddresses

LAYOUTS = ["page_first", "page_first_direct", "page_head", "layer_first"]
POOLS = [("mha", layout) for layout in LAYOUTS] + [
    ("mla", layout) for layout in LAYOUTS if layout != "page_head"
]


@pytest.mark.parametrize(("kind", "layout"), POOLS)
def test_addresses_computed_for_real_pools_match_the_pools_own(
    kind: str, layout: str, tmp_path: Any
) -> None:
    shape = Shape(kind=kind, layout=layout)
    publish(shape, extra_config(tmp_path / "nobody"))
    pool = host_pool(shape)
    find = pool.get_page_buffer_meta
    addresses, counted = (
        PageAddresses(find, 16, pool.size),
        PageAddresses(find, 16, pool.size, 1000),
    )
    assert addresses.regular and counted.regular
    pages = torch.randperm(pool.page_num, generator=torch.Generator().manual_seed(1))
    indices = (pages[:, None] * 16 + torch.arange(16)).flatten()
    found, sizes = find(indices)
    assert sizes == addresses.sizes_bytes * pool.page_num
    assert list(addresses(indices)) == found
    assert list(counted(indices)) == [each - 1000 for each in found]


class Asked:
    """Two pieces a page, 10_000 apart; the page `odd` is somewhere else."""

    def __init__(self, odd: int = -1) -> None:
        self.odd = odd
        self.calls = 0

    def __call__(self, indices: Any) -> tuple[list[int], list[int]]:
        self.calls += 1
        addresses = []
        for head in indices[::4].tolist():
            start = 77_777 if head // 4 == self.odd else 20 * head
            addresses += [start, start + 10_000]
        return addresses, [80] * len(addresses)


def test_irregular_pool_is_always_asked_for_addresses() -> None:
    find = Asked(odd=99)
    addresses = PageAddresses(find, 4, 400)
    assert not addresses.regular
    calls = find.calls
    assert addresses(torch.arange(396, 400)) == [77_777, 87_777]
    assert find.calls == calls + 1


@pytest.mark.parametrize(
    "indices",
    [
        torch.arange(400, 404),  # beyond the pool's end
        torch.arange(-4, 0),
        torch.arange(2, 6),  # not one page
    ],
    ids=str,
)
def test_unverified_indices_are_resolved_by_the_pool(indices: Any) -> None:
    find = Asked()
    addresses = PageAddresses(find, 4, 400)
    assert addresses.regular
    calls = find.calls
    assert addresses(indices) == find(indices)[0]
    assert find.calls == calls + 2


def test_empty_indices_give_no_addresses_and_partial_pages_are_refused() -> None:
    addresses = PageAddresses(Asked(), 4, 400)
    assert not addresses(torch.arange(0))
    with pytest.raises(ValueError, match="other sizes"):
        addresses(torch.arange(6))


def test_address_before_the_registered_memory_is_refused() -> None:
    addresses = PageAddresses(Asked(), 4, 400, origin=100)
    assert not addresses.regular
    assert addresses(torch.arange(8, 12)) == [60, 10_060]
    with pytest.raises(ValueError, match="before the memory"):
        addresses(torch.arange(4))


@pytest.mark.parametrize("indices", [0, 3, 4, 7])
def test_a_pool_of_less_than_two_pages_is_asked(indices: int) -> None:
    find = Asked()
    assert not PageAddresses(find, 4, indices).regular
