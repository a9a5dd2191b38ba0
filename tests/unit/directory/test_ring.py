"""The ring: golden vectors, and the properties of consistent hashing."""

from __future__ import annotations

import hashlib
from array import array

import pytest
from harness.ring_owners import owners
from hypothesis import given, settings
from hypothesis import strategies as st

from peercached._native import RingTable
from peercached.directory import ring as ring_module
from peercached.directory.ring import Ring, positions, vnodes_of

THREE = {"alpha": 0, "beta": 1, "gamma": 2}
NODE_IDS = st.sets(st.text(min_size=1, max_size=8), min_size=1, max_size=12)


def digest_at(place: int) -> bytes:
    return bytes(8) + place.to_bytes(8, "little")


def digests(count: int) -> list[bytes]:
    return [
        hashlib.blake2b(bytes([i & 255, i >> 8]), digest_size=16).digest() for i in range(count)
    ]


def unpacked(packed: tuple[bytes, bytes]) -> tuple[array[int], array[int]]:
    return array("Q", packed[0]), array("H", packed[1])


def built(members: dict[str, int], vnodes: int = 160) -> tuple[array[int], array[int]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ring_module, "VNODES", vnodes)
        return unpacked(Ring().build(members))


# --- golden vectors must never change: nodes of different versions have to agree


def test_node_positions_match_golden_values() -> None:
    assert positions("a", 3) == [4671465435800354350, 7643725175795524652, 12349103225281887769]
    assert positions("node-0", 3) == [2570880372869944537, 3915866660152274497, 9503239042398633605]


def test_small_ring_matches_golden_values() -> None:
    places, nodes = built(THREE, vnodes=4)
    assert places.tolist() == [
        14711284754291407,
        527325961033806605,
        2167004056770452023,
        3602861106300838788,
        3977254838694287497,
        4283258268215867912,
        5774582473827305727,
        7855465177324537149,
        8889779406028658722,
        11188826529118542438,
        14357303124668323726,
        16852031354762869319,
    ]
    assert nodes.tolist() == [2, 2, 2, 0, 1, 1, 2, 1, 0, 1, 0, 0]


def test_full_ring_matches_golden_hashes() -> None:
    places, nodes = Ring().build(THREE)
    assert (
        hashlib.sha256(places).hexdigest()
        == "f14d87f61013ca71d14e215dc2b9b1d142acc358f0039b6a2c9c9bed8a630a22"
    )
    assert (
        hashlib.sha256(nodes).hexdigest()
        == "7c48639fa689160b7496d3a430221be7591a03849824c2402ed17b1e436b1053"
    )


@pytest.mark.parametrize(
    ("place", "expected"),
    [(0, [1, 2, 0]), (1, [1, 2, 0]), (1 << 63, [2, 1, 0]), ((1 << 64) - 1, [1, 2, 0])],
)
def test_digest_owners_match_golden_values(place: int, expected: list[int]) -> None:
    assert owners(digest_at(place), *built(THREE), replicas=3) == expected


def test_hashed_digest_owners_match_golden_values() -> None:
    found = [
        owners(hashlib.blake2b(name, digest_size=16).digest(), *built(THREE), replicas=2)
        for name in (b"x", b"y", b"z", b"w")
    ]
    assert found == [[1, 2], [1, 2], [2, 1], [0, 1]]


# --- properties


@given(NODE_IDS, st.data())
def test_the_order_of_the_members_does_not_matter(node_ids: set[str], data: st.DataObject) -> None:
    ordered = sorted(node_ids)
    members = {node_id: index for index, node_id in enumerate(ordered)}
    shuffled = data.draw(st.permutations(ordered))
    assert built(members, 7) == built({node_id: members[node_id] for node_id in shuffled}, 7)


@given(st.lists(NODE_IDS, min_size=2, max_size=6))
def test_the_views_before_do_not_matter(views: list[set[str]]) -> None:
    remembering = Ring()
    for turn, node_ids in enumerate(views):
        # Indices change as nodes restart.
        members = {node_id: turn + index for index, node_id in enumerate(sorted(node_ids))}
        weights = {node_id: 1 + (turn + len(node_id)) % 3 for node_id in members}
        assert remembering.build(members, weights) == Ring().build(members, weights)


@given(NODE_IDS.filter(lambda node_ids: len(node_ids) > 1))
def test_a_leaving_node_moves_only_its_own_digests(node_ids: set[str]) -> None:
    members = {node_id: index for index, node_id in enumerate(sorted(node_ids))}
    leaver, gone = members.popitem()
    before, after = built({**members, leaver: gone}, 20), built(members, 20)
    for digest in digests(50):
        was = owners(digest, *before, replicas=len(members) + 1)
        assert owners(digest, *after, replicas=len(members)) == [n for n in was if n != gone]


@given(NODE_IDS, st.integers(1, 8))
def test_owners_are_distinct_and_as_many_as_there_are(node_ids: set[str], replicas: int) -> None:
    ring = built({node_id: index for index, node_id in enumerate(sorted(node_ids))}, 10)
    for digest in digests(20):
        found = owners(digest, *ring, replicas=replicas)
        assert len(found) == len(set(found)) == min(replicas, len(node_ids))


def test_equal_positions_are_ordered_by_node_id(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ring_module, "positions", lambda node_id, count: [7, 9])
    ring = Ring()
    ring.build({"m": 0})
    ring.build({"m": 0, "z": 1})
    places, nodes = unpacked(ring.build({"z": 1, "a": 2, "m": 0}))
    assert places.tolist() == [7, 7, 7, 9, 9, 9]
    assert nodes.tolist() == [2, 0, 1, 2, 0, 1]


def test_an_empty_view_owns_nothing() -> None:
    assert Ring().build({}) == (b"", b"")
    assert owners(digest_at(5), *built({}), replicas=2) == []


def test_a_view_beyond_the_index_is_refused() -> None:
    with pytest.raises(ValueError, match="65537 nodes"):
        Ring().build({str(i): 0 for i in range(65537)})


def test_node_weights_match_golden_values() -> None:
    gib = 1 << 30
    weights = {"alpha": 64 * gib, "beta": 256 * gib, "gamma": 96 * gib, "delta": 0}
    assert vnodes_of(weights) == {"alpha": 107, "beta": 427, "gamma": 160, "delta": 160}
    assert vnodes_of({"tiny": 1, "mid": gib, "huge": 10**18}) == {
        "tiny": 20,
        "mid": 160,
        "huge": 1280,
    }
    assert vnodes_of({"one": 7, "two": 7}) == {"one": 160, "two": 160}
    assert vnodes_of({"no": 0, "nor": 0}) == {"no": 160, "nor": 160}
    places, nodes = unpacked(Ring().build({"a": 0, "b": 1}, {"a": 100, "b": 200}))
    assert places.tolist() == sorted([*positions("a", 160), *positions("b", 320)])
    assert nodes.tolist().count(1) == 320


def test_a_node_owns_in_proportion_to_its_weight() -> None:
    members = {f"node-{i}": i for i in range(40)}
    weights = {name: (4 if index == 0 else 1) << 30 for name, index in members.items()}
    shares = dict(RingTable(*Ring().build(members, weights), 2).shares())
    assert shares[0] == pytest.approx(4 / 43, rel=0.15)


@given(
    st.lists(
        st.dictionaries(st.text(min_size=1, max_size=4), st.integers(0, 1 << 50), max_size=6),
        min_size=1,
        max_size=6,
    )
)
@settings(deadline=None)
def test_the_weights_before_do_not_matter(views: list[dict[str, int]]) -> None:
    remembering = Ring()
    for weights in views:
        members = {node_id: index for index, node_id in enumerate(sorted(weights))}
        assert remembering.build(members, weights) == Ring().build(members, weights)


def test_node_with_more_positions_keeps_its_old_ones() -> None:
    assert set(positions("a", 40)) < set(positions("a", 160))


def test_shares_are_near_even() -> None:
    members = {f"node-{i}": i for i in range(40)}
    shares = dict(RingTable(*Ring().build(members), 2).shares())
    assert set(shares) == set(members.values())
    assert sum(shares.values()) == pytest.approx(1)
    assert max(shares.values()) < 1.5 / 40
    assert min(shares.values()) > 0.6 / 40


@given(NODE_IDS, st.integers(1, 4))
def test_native_and_python_name_the_same_owners(node_ids: set[str], replicas: int) -> None:
    packed = Ring().build({node_id: index for index, node_id in enumerate(sorted(node_ids))})
    table = RingTable(*packed, replicas)
    places, nodes = unpacked(packed)
    edges = [digest_at((p + d) % (1 << 64)) for p in places[:5] for d in (-1, 0, 1)]
    for digest in digests(30) + edges:
        assert table.owners(digest) == owners(digest, places, nodes, replicas)
