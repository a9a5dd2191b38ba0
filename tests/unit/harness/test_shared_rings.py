"""The simulator's shared rings give each node the answers of its own ring, and its tables are the
daemon's."""

from __future__ import annotations

from array import array

import pytest
from harness.fake_engine import FakeEngine, build_ring, digest_of
from harness.ring_owners import owners as owners_of
from harness.shared_rings import RingTable

from peercached import _native
from peercached.directory.layout import ROW_BYTES, ZERO_SUMMARY
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
    everything = b"".join(PAGES)
    for first_only in (False, True):
        assert shared.split(everything, 16, first_only) == own.split(everything, 16, first_only)
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
    everything = b"".join(PAGES)
    for first_only in (False, True):
        assert shared.split(everything, 16, first_only) == own.split(everything, 16, first_only)


def test_holder_summary_matches_the_owners_records() -> None:
    holder, owner = FakeEngine(), FakeEngine()
    at_holder = {"holder": 0, "owner": holder.add_node("owner", 1), "third": 7}
    at_owner = {"owner": 0, "third": 7, "holder": owner.add_node("holder", 1)}
    holder.set_ring(*build_ring(at_holder), 1)
    owner.set_ring(*build_ring(at_owner), 1)
    rows = b"".join(holder.set_page(digest) for digest in PAGES)
    owner.shard_apply(at_owner["holder"], rows)
    _, summaries = holder.pool_summaries()
    assert summaries[at_holder["owner"]] == owner.shard_summary(at_owner["holder"]) != ZERO_SUMMARY

    _, owned = holder.pool_rows(at_holder["owner"], bytes([1]) * 256)
    assert len(PAGES) - len(owned) // ROW_BYTES == owner.shard_trim() > 0
    assert summaries[at_holder["owner"]] == owner.shard_summary(at_owner["holder"])


def test_index_of_a_dropped_node_is_reused_only_after_its_sweep() -> None:
    engine = FakeEngine()
    engine.swept_at_once = False
    first = engine.add_node("first", 1)
    other = FakeEngine()
    engine.shard_apply(first, b"".join(map(other.set_page, PAGES)))
    engine.drop_node(first)
    assert engine.shard == {}
    assert engine.add_node("second", 2) != first
    while engine.shard_sweep(100):
        pass
    assert engine.add_node("third", 3) == first
    assert engine.shard == {}
