"""The comparison of private host tiers with one shared pool, at equal memory."""

import pytest
from bench.host_tier import Tiered


def of(memory: int, share: float, requests: list[list[int]], *, by_prefix: bool = False) -> Tiered:
    hosts = Tiered(memory, share, by_prefix=by_prefix, nodes=2)
    for blocks in requests:
        hosts.request(blocks)
    return hosts


def test_a_block_found_in_the_tier_is_not_asked_of_the_storage() -> None:
    hosts = of(80, 0.5, [[1, 2], [8, 9], [1, 2, 3]])
    assert (hosts.in_tier, hosts.from_storage) == (2, 0)
    assert hosts.pool.found.asked == 2 + 2 + 1


def test_another_node_finds_the_block_in_the_storage_and_keeps_it() -> None:
    hosts = of(80, 0.5, [[1, 2], [1, 2], [7], [1, 2]])
    assert (hosts.in_tier, hosts.from_storage) == (2, 2)


def test_a_router_by_prefix_finds_the_tier_that_has_it() -> None:
    requests = [[1, 2], [1, 2], [1, 2]]
    assert of(80, 0.5, requests, by_prefix=True).in_tier == 4


def test_tiers_and_pool_have_the_memory_together() -> None:
    once = [[block] for block in range(40)]
    all_shared = of(40, 0.0, once * 2)
    assert all_shared.hit_rate == pytest.approx(0.5)
    assert of(40, 0.5, once * 2).hit_rate < 0.5, "tier and pool hold the same blocks"
