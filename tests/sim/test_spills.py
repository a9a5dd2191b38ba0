"""Spill in whole clusters, in virtual time, by seed."""

from __future__ import annotations

import pytest

from sim.seeds import some
from sim.spills import BYTES_PER_S, PAGE_BYTES, POOL_PAGES, play

NODES = 4


@pytest.mark.parametrize("seed", some(1, 20))
@pytest.mark.parametrize("fate", ["", "dies", "joins", "drains"])
def test_pages_of_two_writers_fill_all_pools(seed: int, fate: str) -> None:
    story = play(seed, writers=2, nodes=NODES, fate=fate)
    room = POOL_PAGES * len(story.cluster.nodes)
    assert story.held() > 0.85 * room, "it is half of that without spill"
    assert story.given * PAGE_BYTES <= 2 * BYTES_PER_S * story.seconds
    assert story.moves() <= 2, "no page wanders"
    if not fate:
        assert story.found == story.asked, "what was set a moment ago is found"


@pytest.mark.parametrize("seed", some(1, 20))
def test_no_more_pages_are_lost_than_the_cluster_has_no_room_for(seed: int) -> None:
    story = play(seed, writers=2, nodes=NODES, rate=4.0)
    too_many = len(story.set) - NODES * POOL_PAGES
    assert story.cluster.lost < too_many + len(story.set) / 10


@pytest.mark.parametrize("seed", some(1, 20))
def test_equal_writers_exchange_nothing(seed: int) -> None:
    story = play(seed, writers=NODES, nodes=NODES, rate=4.0)
    assert story.cluster.evicted > NODES * POOL_PAGES / 4
    assert story.given < story.cluster.evicted / 10
