"""The simulator's shared rings give each node the answers of its own ring."""

from __future__ import annotations

from array import array

import pytest
from harness.fake_engine import build_ring, digest_of
from harness.ring_owners import owners as owners_of
from harness.shared_rings import RingTable

from peercached import _native
from peercached.directory.ring import Ring

POOLS = {"a": 1 << 30, "b": 2 << 30, "c": 5 << 30, "d": 1 << 30, "e": 0}
PAGES = [digest_of(f"page {page}") for page in range(300)]


@pytest.mark.parametrize("order", ["abcde", "edcba", "cadeb"])
def test_shared_ring_matches_own_ring_for_any_member_indices(order: str) -> None:
    members = {node_id: index for index, node_id in enumerate(order)}
    shared = RingTable(*build_ring(members, POOLS), 2)
    packed = Ring().build(members, weights=POOLS)
    own = _native.RingTable(*packed, 2)
    places, nodes = array("Q", packed[0]), array("H", packed[1])
    for digest in PAGES:
        assert shared.owners(digest) == own.owners(digest)
        assert shared.owners(digest) == owners_of(digest, places, nodes, 2)
    assert dict(shared.shares(2)) == pytest.approx(dict(own.shares(2)))


@pytest.mark.parametrize("gone", "abcde")
def test_subset_ring_matches_full_ring_lookup(
    gone: str,
) -> None:
    build_ring({node_id: index for index, node_id in enumerate("abcde")}, POOLS)
    others = {node_id: index for index, node_id in enumerate("abcde", 3) if node_id != gone}
    shared = RingTable(*build_ring(others, POOLS), 2)
    own = _native.RingTable(*Ring().build(others, weights=POOLS), 2)
    assert [shared.owners(digest) for digest in PAGES] == [own.owners(digest) for digest in PAGES]
