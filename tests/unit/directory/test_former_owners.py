"""Withdrawals must also reach former owners that still keep the record."""

from typing import Any, cast

import pytest
from harness.fake_engine import ROW, FakeEngine, FakeNative, build_ring, digest_of, unpack_rows
from harness.fake_rows import withdrawals_of

from peercached.directory.layout import ROW_BYTES, SELF, gone_from_pool
from peercached.directory.local import LocalShard
from peercached.directory.pending import PendingBatches
from peercached.directory.placement import FORMER_S, Placement
from peercached.directory.publisher import Publisher
from peercached.membership import Member, NodeAddress, View

NOW = 100.0
OWN = NodeAddress("a", 1, "10.0.0.1", 1, 2)
PAGES = [digest_of(f"page {page}") for page in range(400)]


class Holder:
    """Node a, in views with one owner a digest. It records its offers to other nodes."""

    def __init__(self) -> None:
        self.engine = FakeEngine()
        engine = cast(Any, self.engine)
        self.placement = Placement(engine, OWN, build_ring, cast(Any, FakeNative), 1)
        self.now = NOW
        self.offered: list[tuple[str, bytes]] = []
        self.tickets: dict[int, int] = {}  # owner -> its latest ticket
        self.pending = PendingBatches(engine)
        self.publisher = Publisher(
            engine,
            LocalShard(engine, FakeNative(), lambda: None),
            self,
            self.pending,
            1.0,
            self.placement,
        )
        self.view(1, "b", "c")
        self.view(2, "b", "c", "d")
        self.placement.everybody_has_the_view()

    def under_way(self) -> list[int]:
        return list(self.tickets)

    def doubtful(self) -> list[int]:
        return []

    def offer(self, owner: int, rows: bytes, ticket: int) -> bool:
        self.tickets[owner] = ticket
        name = self.placement.nodes[owner].address.node_id
        self.offered += [(name, row[0]) for row in unpack_rows(rows)]
        return True

    def view(self, number: int, *others: str, settled: bool = False) -> None:
        """Those whose names begin with e are the oldest, so they own records."""
        ages = {name: 0 if name.startswith("e") else 1 for name in others}
        each = [OWN, *(NodeAddress(name, age, "10.0.0.9", 1, 2) for name, age in ages.items())]
        self.placement.apply(View.of(number, map(Member, each)), self.now, settled)

    def owner(self, digest: bytes) -> str:
        return self.placement.nodes[self.engine.owners(digest)[0]].address.node_id

    def former_owners(self) -> dict[bytes, set[str]]:
        found: dict[bytes, set[str]] = {digest: set() for digest in PAGES}
        for owner, part in self.placement.former_owners(b"".join(PAGES), self.now):
            name = self.placement.nodes[owner].address.node_id
            for at in range(0, len(part), 16):
                found[part[at : at + 16]].add(name)
        return found

    def moved(self, before: str) -> list[bytes]:
        """Digests that moved from that node to the newcomer d."""
        old = FakeNative.RingTable(*build_ring({"a": SELF, "b": 1, "c": 2}), 1)
        number = {"a": SELF, "b": 1, "c": 2}[before]
        return [d for d in PAGES if self.owner(d) == "d" and old.owners(d) == [number]]


@pytest.fixture
def holder() -> Holder:
    return Holder()


def test_withdrawals_also_go_to_former_owners_but_records_do_not(holder: Holder) -> None:
    digest = holder.moved("b")[0]
    holder.publisher.publish(holder.engine.set_page(digest), NOW, 1.0, lambda: None)
    assert holder.offered == [("d", digest)]
    holder.offered.clear()
    holder.publisher.forward(holder.engine.drop_page(digest), holder.now)
    assert sorted(holder.offered) == [("b", digest), ("d", digest)]
    holder.offered.clear()
    gone = withdrawals_of(holder.engine.set_page(digest))
    holder.publisher.publish(gone, NOW, 1.0, lambda: None)
    assert sorted(holder.offered) == [("b", digest), ("d", digest)]


def test_take_back_waits_for_the_former_owner(holder: Holder) -> None:
    digest = holder.moved("b")[0]
    holder.engine.set_page(digest)
    told: list[set[int]] = []
    holder.publisher.take_back(holder.engine.drop_page(digest), NOW, 1.0, told.append)
    names = {holder.placement.nodes[owner].address.node_id for owner in holder.tickets}
    assert names == {"b", "d"}
    assert all(holder.tickets.values()), "an answer comes from both"
    for owner, ticket in holder.tickets.items():
        assert not told
        holder.pending.acknowledged(owner, [ticket])
    assert told == [set()]


def test_records_go_to_former_owners_until_all_have_the_view(holder: Holder) -> None:
    before = {digest: holder.owner(digest) for digest in PAGES}
    holder.view(3, "b", "c", "d", "e")
    first, second = [d for d in PAGES if (before[d], holder.owner(d)) == ("d", "e")][:2]
    holder.publisher.publish(holder.engine.set_page(first), NOW, 1.0, lambda: None)
    assert sorted(holder.offered) == [("d", first), ("e", first)]
    holder.offered.clear()
    holder.placement.everybody_has_the_view()
    holder.publisher.publish(holder.engine.set_page(second), NOW, 1.0, lambda: None)
    assert holder.offered == [("e", second)]


def test_disk_only_records_also_go_to_the_former_owner(holder: Holder) -> None:
    digest = holder.moved("b")[0]
    ((_, offset, generation, check, length, self_, _),) = unpack_rows(
        holder.engine.set_page(digest)
    )
    del offset
    holder.publisher.forward(
        ROW.pack(digest, 0, generation + 1, check, length, self_, 0), holder.now
    )
    assert sorted(holder.offered) == [("b", digest), ("d", digest)]


def test_withdrawal_removes_a_formerly_owned_record_from_our_shard(holder: Holder) -> None:
    digest = holder.moved("a")[0]
    holder.engine.shard_apply(SELF, holder.engine.set_page(digest))
    holder.publisher.forward(holder.engine.drop_page(digest), holder.now)
    assert holder.engine.shard == {}


def test_unchanged_owner_gets_each_withdrawal_once(holder: Holder) -> None:
    stayed = [d for d in PAGES if holder.owner(d) == "b"]
    for digest in stayed:
        holder.engine.set_page(digest)
    holder.publisher.forward(b"".join(map(holder.engine.drop_page, stayed)), holder.now)
    assert sorted(holder.offered) == sorted(("b", digest) for digest in stayed)


def test_former_owner_gets_no_withdrawals_after_its_keep_time(holder: Holder) -> None:
    digest = holder.moved("b")[0]
    holder.engine.set_page(digest)
    holder.now += FORMER_S
    holder.publisher.forward(holder.engine.drop_page(digest), holder.now)
    assert holder.offered == [("d", digest)]


def test_burst_of_views_keeps_the_last_settled_former_owners(holder: Holder) -> None:
    before = {digest: holder.owner(digest) for digest in PAGES}
    others = ["b", "c", "d"]

    def joins(number: int, settled: bool) -> dict[bytes, set[str]]:
        others.append(f"e{number}")
        holder.view(number, *others, settled=settled)
        return holder.former_owners()

    for number in range(3, 12):
        former = joins(number, settled=number == 3)
        assert all(before[digest] in former[digest] for digest in PAGES)
    settled = {digest: holder.owner(digest) for digest in PAGES}
    for number in range(12, 16):
        former = joins(number, settled=number == 12)
        assert all(settled[digest] in former[digest] for digest in PAGES)
    assert any(before[digest] not in former[digest] for digest in PAGES), "no longer needed"


def test_gone_from_pool_returns_only_withdrawals(holder: Holder) -> None:
    rows = b"".join(map(holder.engine.set_page, PAGES[:4]))
    gone = withdrawals_of(rows)
    assert gone_from_pool(b"") == gone_from_pool(rows) == b""
    assert gone_from_pool(gone) == gone
    mixed = rows[:ROW_BYTES] + gone[ROW_BYTES:]
    assert gone_from_pool(mixed) == gone[ROW_BYTES:]
