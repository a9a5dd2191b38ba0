"""The eviction order of simulated pools: that of the daemon's pool (recency_test.cc)."""

from __future__ import annotations

from peercached.sizing.pool import Pool


def test_block_used_once_goes_first() -> None:
    pool = Pool(3)
    for block in (1, 2, 3):
        assert pool.set(block) == []
    pool.use(1)
    assert pool.set(4) == [2]
    assert pool.set(5) == [3]
    assert 1 in pool


def test_block_used_again_outlives_one_pool_of_new_blocks_but_not_two() -> None:
    pool = Pool(10)
    pool.set(0)
    pool.use(0)
    evicted = [block for new in range(1, 25) for block in pool.set(new)]
    assert evicted.index(0) == 10


def test_block_set_again_soon_after_its_eviction_counts_as_used_again() -> None:
    pool = Pool(2)
    for block in (0, 1, 2):
        pool.set(block)
    assert 0 not in pool
    pool.set(0)
    assert pool.set(3) == [2]
    assert pool.set(4) == [3]
    assert 0 in pool


def test_block_evicted_long_ago_is_new() -> None:
    pool = Pool(2)
    for block in range(9):
        pool.set(block)
    assert [block for new in (0, 100, 101) for block in pool.set(new)][-1] == 0
