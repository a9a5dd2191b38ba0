"""Which members own records: the oldest, and never more of them than a set should wait for."""

from __future__ import annotations

from typing import Any, cast

from harness.fake_engine import FakeEngine, FakeNative, build_ring, digest_of

from peercached.directory.owner_choice import choose_owners, owners_in
from peercached.directory.placement import Placement
from peercached.membership import Member, NodeAddress, View

PAGES = [digest_of(f"page {number}") for number in range(300)]


class Observer:
    """A node that maps views to owners; it is as old as its incarnation says."""

    def __init__(self, node_id: str, incarnation: int) -> None:
        self.engine = FakeEngine()
        self.own = address(node_id, incarnation)
        self.placement = Placement(
            cast(Any, self.engine), self.own, build_ring, cast(Any, FakeNative), 2
        )

    def view(self, number: int, others: dict[str, int]) -> None:
        members = [self.own, *(address(node_id, age) for node_id, age in others.items())]
        self.placement.apply(View.of(number, map(Member, members)), now=0.0)

    def owners(self) -> set[str]:
        nodes = self.placement.nodes
        found = (owner for page in PAGES for owner in self.engine.owners(page))
        return {nodes[owner].address.node_id for owner in found}


def address(node_id: str, incarnation: int) -> NodeAddress:
    return NodeAddress(node_id, incarnation, "10.0.0.9", 1, 2)


def test_an_owner_has_the_records_of_eight_members_for_each_replica() -> None:
    for members, owners in {1: 1, 4: 4, 5: 4, 32: 4, 33: 5, 64: 8, 65: 9, 1000: 125}.items():
        assert owners_in(members) == owners
        assert len(choose_owners({f"n{number}": number for number in range(members)})) == owners


def test_the_oldest_members_are_the_owners_and_node_ids_decide_between_equals() -> None:
    ages = {"z": 1, "y": 2} | {f"n{number}": 3 for number in range(20)}
    assert choose_owners(ages) == {"z", "y", "n0", "n1"}


def test_nodes_with_the_same_view_agree_and_a_newcomer_owns_nothing() -> None:
    ages = {f"n{number}": number + 1 for number in range(12)}
    observers = [Observer(node_id, age) for node_id, age in ages.items()]
    for observer in observers:
        observer.view(1, {n: a for n, a in ages.items() if n != observer.own.node_id})
    oldest = {f"n{number}" for number in range(4)}
    assert all(observer.owners() == oldest for observer in observers)

    # An owner leaves: the oldest of the others takes its place.
    del ages["n3"]
    for observer in observers:
        if observer.own.node_id != "n3":
            observer.view(2, {n: a for n, a in ages.items() if n != observer.own.node_id})
            assert observer.owners() == oldest - {"n3"} | {"n4"}

    # It comes back as a newcomer, and no owner changes.
    observers[0].view(3, {n: a for n, a in ages.items() if n != "n0"} | {"n3": 100})
    assert observers[0].owners() == oldest - {"n3"} | {"n4"}
