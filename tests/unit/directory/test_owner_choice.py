"""The members that own records: the oldest, and never more than a set should wait for."""

from __future__ import annotations

from typing import Any, cast

import pytest
from harness.fake_engine import FakeEngine, build_ring, digest_of

from peercached.directory.owner_choice import choose_owners, owners_in
from peercached.directory.placement import Placement
from peercached.membership import Member, NodeAddress, View

PAGES = [digest_of(f"page {number}") for number in range(300)]


class Observer:
    """A node that maps views to owners."""

    def __init__(self, node_id: str) -> None:
        self.engine = FakeEngine()
        self.own = address(node_id)
        self.placement = Placement(cast(Any, self.engine), self.own, build_ring, 2)

    def view(self, number: int, since: dict[str, int]) -> None:
        members = [Member(address(node_id)) for node_id in since]
        self.placement.apply(View.of(number, members, since), now=0.0)

    def owners(self) -> set[str]:
        nodes = self.placement.nodes
        found = (owner for page in PAGES for owner in self.engine.owners(page))
        return {nodes[owner].address.node_id for owner in found}


def address(node_id: str, incarnation: int = 1, host: str = "10.0.0.9") -> NodeAddress:
    return NodeAddress(node_id, incarnation, host, 1, 2)


def test_an_owner_has_the_records_of_eight_members_for_each_replica() -> None:
    for members, owners in {1: 1, 4: 4, 5: 4, 32: 4, 33: 5, 64: 8, 65: 9, 1000: 125}.items():
        assert owners_in(members) == owners
        since = {address(f"n{number}"): number for number in range(members)}
        assert len(choose_owners(since)) == owners


def test_the_members_longest_in_views_are_the_owners_whatever_incarnations_they_claim() -> None:
    since = {address("z", 90): 1, address("y", 80): 2}
    since |= {address(f"n{number}", number): 3 for number in range(20)}
    assert choose_owners(since) == {"z", "y", "n0", "n1"}


@pytest.mark.parametrize("members", [12, 100])
def test_one_host_has_half_of_the_owners_at_most_if_others_have_members(members: int) -> None:
    since = {address(f"n{n}", host="10.0.0.1"): 1 for n in range(members - 3)}
    since |= {address(f"x{n}", host=f"10.0.1.{n}"): 2 for n in range(3)}
    chosen = choose_owners(since)
    assert chosen >= {"x0", "x1"}
    assert len(chosen) == owners_in(members)
    alone = {one for one in since if one.host == "10.0.0.1"}
    assert len(choose_owners(dict.fromkeys(alone, 1))) == owners_in(len(alone))


def test_nodes_with_the_same_view_agree_and_a_newcomer_owns_nothing() -> None:
    ages = {f"n{number}": number + 1 for number in range(12)}
    observers = [Observer(node_id) for node_id in ages]
    for observer in observers:
        observer.view(1, ages)
    oldest = {f"n{number}" for number in range(4)}
    assert all(observer.owners() == oldest for observer in observers)

    # An owner leaves: the oldest of the others takes its place.
    del ages["n3"]
    for observer in observers:
        if observer.own.node_id != "n3":
            observer.view(2, ages)
            assert observer.owners() == oldest - {"n3"} | {"n4"}

    # It comes back as a newcomer, and no owner changes.
    observers[0].view(3, ages | {"n3": 100})
    assert observers[0].owners() == oldest - {"n3"} | {"n4"}
