"""One lookup: which nodes it asks, when an absence is final, and which answers it awaits."""

from typing import Any, cast

import pytest
from harness.fake_engine import ROW, FakeEngine, FakeNative, build_ring, digest_of

from peercached.directory.layout import SELF
from peercached.directory.lookup import OVERDUE_MAX, Ask, Lookup, LookupCounters
from peercached.directory.owner import OwnerSide
from peercached.directory.placement import FORMER_S, Node, Placement
from peercached.membership import Member, NodeAddress, View

OWN = NodeAddress("a", 1, "10.0.0.1", 1, 2)
NOW = 100.0


def address(node_id: str) -> NodeAddress:
    return NodeAddress(node_id, 1, "10.0.0.9", 1, 2)


class Reader:
    """Node a, in a view with other nodes whose answers the test decides."""

    def __init__(self, *others: str, replicas: int = 2) -> None:
        self.engine = FakeEngine()
        self.placement = Placement(
            cast(Any, self.engine), OWN, build_ring, cast(Any, FakeNative), replicas
        )
        self.side = OwnerSide(cast(Any, self.engine))
        self.view(1, *others)

    def view(self, number: int, *others: str, now: float = 0.0) -> None:
        self.placement.apply(View.of(number, map(Member, [OWN, *map(address, others)])), now)
        self.side.set_view(number, self.placement.nodes)

    def all_owners_change(self, now: float) -> None:
        """Nodes b and c stay members, but eight older ones own all records."""
        older = [NodeAddress(f"old {i}", 0, f"10.0.1.{i}", 1, 2) for i in range(8)]
        members = [OWN, address("b"), address("c"), *older]
        self.placement.apply(View.of(2, map(Member, members)), now)
        self.side.set_view(2, self.placement.nodes)

    def node(self, node_id: str) -> Node:
        found = self.placement.find(node_id, 1)
        assert found is not None
        return found

    def digests_of(self, *owners: str, count: int = 1) -> bytes:
        """Digests that exactly these nodes own, in any order."""
        wanted = {self.node(owner).index for owner in owners}
        each = (digest_of(f"page {number}") for number in range(100_000))
        chosen = [d for d in each if set(self.engine.owners(d)) == wanted][:count]
        return b"".join(chosen)

    def lookup(self, digests: bytes, now: float = NOW) -> Lookup:
        return Lookup(
            cast(Any, self.engine),
            cast(Any, FakeNative),
            self.placement,
            self.side,
            LookupCounters(),
            digests,
            now,
        )

    def names(self, asks: list[Ask]) -> list[str]:
        return sorted(self.placement.nodes[ask.owner].address.node_id for ask in asks)


def record(digest: bytes, holder: int = 0) -> bytes:
    return ROW.pack(digest, 64, 1, 1, 64, holder, 1)


HOLDERS = [("c", 1)]


def ask_of(asks: list[Ask]) -> Ask:
    (ask,) = asks
    return ask


# --- finality ---------------------------------------------------------------------------------


def test_absence_is_believed_only_from_a_final_owner() -> None:
    reader = Reader("b", "c")
    digests = reader.digests_of("b", "c", count=3)
    for final, more in ((True, 0), (False, 1)):
        lookup = reader.lookup(digests)
        asks = lookup.answered(ask_of(lookup.start()), b"", [], final)
        assert len(asks) == more
        assert lookup.settled == final
        for ask in asks:
            assert ask.digests == digests
            assert lookup.answered(ask, b"", [], False) == [], "nobody is left"
        assert lookup.settled


def test_only_missing_digests_are_asked_again() -> None:
    reader = Reader("b", "c")
    digests = reader.digests_of("b", "c", count=3)
    lookup = reader.lookup(digests)
    more = lookup.answered(ask_of(lookup.start()), record(digests[16:32]), HOLDERS, False)
    assert ask_of(more).digests == digests[:16] + digests[32:]


@pytest.mark.parametrize("holder", ["a", "c"])
def test_owner_naming_an_unreadable_holder_does_not_end_the_lookup(
    holder: str,
) -> None:
    """The holder is this node, which has evicted the page, or a suspect."""
    reader = Reader("b", "c", "d")
    digests = reader.digests_of("b", "d", count=2)
    reader.node("c").suspect = True
    rows = record(digests[:16], 0) + record(digests[16:], 1)
    for final, more in ((False, [digests[:16]]), (True, [])):
        lookup = reader.lookup(digests)
        asks = lookup.answered(ask_of(lookup.start()), rows, [(holder, 1), ("b", 1)], final)
        assert [ask.digests for ask in asks] == more
        assert len(lookup.rows()) == len(rows), "it may answer again"


def test_own_shard_is_final_only_with_all_holders_in_sync() -> None:
    reader = Reader("b", "c")
    digest = reader.digests_of("a", "b")
    assert reader.names(reader.lookup(digest).start()) == ["b"], "c may not have told us yet"
    reader.side._unsynced.clear()
    lookup = reader.lookup(digest)
    assert lookup.start() == []
    assert lookup.settled
    reader.side.view_changes()
    assert reader.names(reader.lookup(digest).start()) == ["b"]


def test_former_owners_are_asked_for_a_limited_time() -> None:
    reader = Reader("b", "c")
    digest = reader.digests_of("b", "c")
    reader.all_owners_change(now=NOW)

    def asked(now: float) -> list[str]:
        lookup = reader.lookup(digest, now)
        asks = lookup.start()
        names = []
        while asks:
            ask = asks.pop()
            names += reader.names([ask])
            asks += lookup.answered(ask, b"", [], False)
        return names

    assert {"b", "c"} <= set(asked(NOW + FORMER_S - 1))
    assert not {"b", "c"} & set(asked(NOW + FORMER_S))


def test_answer_that_does_not_fit_its_question_changes_nothing() -> None:
    reader = Reader("b", "c")
    digest = reader.digests_of("b", "c")
    lookup = reader.lookup(digest)
    ask = ask_of(lookup.start())
    for rows, holders, why in (
        (record(digest, holder=1), HOLDERS, "outside the table"),
        (record(digest) * 4, HOLDERS, "4 records of 1 holders for 1 digests"),
        (record(digest), HOLDERS * 2, "1 records of 2 holders for 1 digests"),
    ):
        with pytest.raises(ValueError, match=why):
            lookup.answered(ask, rows, holders, True)
    assert len(lookup.failed(ask)) == 1
    assert lookup.rows() == b""


def test_holders_that_are_not_in_our_view_are_dropped() -> None:
    reader = Reader("b", "c")
    digest = reader.digests_of("b", "c")
    lookup = reader.lookup(digest)
    lookup.answered(ask_of(lookup.start()), record(digest), [("c", 2)], True)
    assert lookup.rows() == b""


# --- owners in trouble ------------------------------------------------------------------------


def test_suspect_owner_is_skipped_and_the_lookup_misses_without_another() -> None:
    reader = Reader("b", "c")
    digest = reader.digests_of("b", "c")
    reader.node("b").suspect = True
    assert reader.names(reader.lookup(digest).start()) == ["c"]
    reader.node("c").suspect = True
    lookup = reader.lookup(digest)
    assert lookup.start() == []
    assert lookup.settled


def test_former_owners_are_asked_while_all_owners_are_suspect() -> None:
    """Both owners have just returned, and nobody can reach them yet."""
    reader = Reader("d")
    reader.view(2, "b", "c", "d", now=NOW - 1)
    digests = reader.digests_of("b", "c", count=2)
    reader.node("b").suspect = reader.node("c").suspect = True
    reader.side._unsynced.clear()
    lookup = reader.lookup(digests)
    assert reader.names(asks := lookup.start()) == ["d"]
    assert lookup.answered(ask_of(asks), record(digests[:16], holder=0), [("d", 1)], True) == []
    assert lookup.settled
    assert len(lookup.rows()) == ROW.size
    reader.node("d").suspect = True
    assert reader.lookup(digests).start() == []


def test_an_owner_that_fails_is_replaced_by_the_other() -> None:
    reader = Reader("b", "c")
    digest = reader.digests_of("b", "c")
    lookup = reader.lookup(digest)
    first = ask_of(lookup.start())
    second = ask_of(lookup.failed(first))
    assert second.owner != first.owner
    assert not lookup.settled
    assert lookup.failed(second) == []
    assert lookup.settled


def test_overdue_owner_is_not_awaited_once_another_settles_its_digests() -> None:
    reader = Reader("b", "c")
    digests = reader.digests_of("b", "c", count=2)
    lookup = reader.lookup(digests)
    first = ask_of(lookup.start())
    second = ask_of(lookup.overdue(first))
    assert second.owner != first.owner
    assert second.digests == digests
    assert not lookup.settled
    assert lookup.answered(second, record(digests[:16]), HOLDERS, True) == []
    assert lookup.settled
    assert len(lookup.rows()) == ROW.size


def test_overdue_owner_is_awaited_while_other_answers_are_not_final() -> None:
    reader = Reader("b", "c")
    digests = reader.digests_of("b", "c", count=2)
    lookup = reader.lookup(digests)
    first = ask_of(lookup.start())
    second = ask_of(lookup.overdue(first))
    assert lookup.answered(second, record(digests[:16]), HOLDERS, False) == []
    assert not lookup.settled, "of the second digest nobody knows for certain"
    assert lookup.answered(first, record(digests[16:]), HOLDERS, False) == []
    assert lookup.settled
    assert len(lookup.rows()) == 2 * ROW.size


def test_overdue_owner_is_awaited_when_its_replacement_fails() -> None:
    reader = Reader("b", "c")
    lookup = reader.lookup(reader.digests_of("b", "c"))
    first = ask_of(lookup.start())
    second = ask_of(lookup.overdue(first))
    assert lookup.failed(second) == []
    assert not lookup.settled
    assert lookup.failed(first) == [], "the other was asked already"
    assert lookup.settled


def test_the_only_owner_is_waited_for_however_overdue() -> None:
    reader = Reader("b", "c", replicas=1)
    lookup = reader.lookup(reader.digests_of("b"))
    first = ask_of(lookup.start())
    assert lookup.overdue(first) == []
    assert not lookup.settled
    lookup.answered(first, b"", [], True)
    assert lookup.settled


def test_our_own_shard_stands_in_for_an_overdue_owner() -> None:
    reader = Reader("b", "c")
    digest = reader.digests_of("a", "b")
    lookup = reader.lookup(digest)
    first = ask_of(lookup.start())  # our shard is not in sync, so the lookup asks b
    assert lookup.overdue(first) == []
    assert not lookup.settled
    assert lookup.failed(first) == []
    assert lookup.settled


def test_the_next_lookup_prefers_owners_that_are_not_overdue() -> None:
    reader = Reader("b", "c")
    digest = reader.digests_of("b", "c")
    for slow, other in (("b", "c"), ("c", "b")):
        reader.node(slow).overdue = 1
        assert reader.names(reader.lookup(digest).start()) == [other]
        reader.node(slow).overdue = 0
    reader.node("b").overdue = reader.node("c").overdue = 1
    assert len(reader.lookup(digest).start()) == 1, "slow is better than a miss"


def test_lookups_that_hang_at_one_owner_are_bounded() -> None:
    reader = Reader("b", "c")
    digest = reader.digests_of("b", "c")
    reader.node("b").overdue = reader.node("c").overdue = OVERDUE_MAX
    assert reader.lookup(digest).start() == []
    assert reader.placement.nodes[SELF] is reader.placement.own


def test_former_owners_final_absence_does_not_settle_a_lookup() -> None:
    reader = Reader("b", "c")
    page = reader.digests_of("b", "c")
    # They stay members, but no longer own the page. The lookup still asks them.
    reader.all_owners_change(now=NOW)
    lookup = reader.lookup(page)
    first = ask_of(lookup.start())
    others = lookup.overdue(first)
    assert {"b", "c"} <= set(reader.names(others))
    former = [ask for ask in others if ask.former]
    for ask in former:
        lookup.answered(ask, b"", [], True)
    assert not lookup.settled, "its owners have not answered"
    (owner,) = (ask for ask in others if not ask.former)
    lookup.answered(owner, b"", [], True)
    assert lookup.settled


def test_reused_index_does_not_inherit_records_of_a_departed_node() -> None:
    reader = Reader("b", "c", "d")
    page = reader.digests_of("b", "c")
    lookup = reader.lookup(page)
    first = ask_of(lookup.start())
    lookup.answered(first, record(page), [("d", 1)], False)
    index = reader.node("d").index
    assert [row[5] for row in ROW.iter_unpack(lookup.rows())] == [index]
    reader.view(2, "b", "c")
    reader.view(3, "b", "c", "e")
    assert reader.node("e").index == index
    assert lookup.rows() == b""
