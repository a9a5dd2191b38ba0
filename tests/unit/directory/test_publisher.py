"""The owners that a set waits for, and the length of the wait."""

from collections.abc import Mapping
from itertools import product
from types import SimpleNamespace
from typing import Any, cast

import pytest
from harness.fake_engine import FakeEngine, FakeNative, build_ring, digest_of

from peercached.directory.layout import SELF
from peercached.directory.local import LocalShard
from peercached.directory.pending import PendingBatches
from peercached.directory.publisher import Publisher
from peercached.peer.directory.streams import Streams as PeerStreams

B, C = 1, 2
TIMEOUT_S = 1.0


class Streams:
    def __init__(self) -> None:
        self.up = {B: True, C: True}
        self.busy: list[int] = []
        self.doubted: list[int] = []
        self.tickets: list[tuple[int, int]] = []

    def offer(self, owner: int, rows: bytes, ticket: int) -> bool:
        self.tickets.append((owner, ticket))
        return self.up[owner]

    def under_way(self) -> list[int]:
        return self.busy

    def doubtful(self) -> list[int]:
        return self.doubted


class NoFormerOwners:
    def former_owners_of(
        self, rows: bytes, owned: Mapping[int, bytes], now: float
    ) -> list[tuple[int, bytes]]:
        return []

    former_owners_in_use = former_owners_of


class Node:
    def __init__(self) -> None:
        self.engine = FakeEngine()
        for name in ("b", "c"):
            self.engine.add_node(name, 1)
        self.engine.set_ring(*build_ring({"a": SELF, "b": B, "c": C}), 2)
        self.streams = Streams()
        engine = cast(Any, self.engine)
        self.local = LocalShard(engine, FakeNative(), lambda: None)
        self.pending = PendingBatches(engine)
        self.publisher = Publisher(
            engine, self.local, self.streams, self.pending, TIMEOUT_S, cast(Any, NoFormerOwners())
        )
        self.answered = 0
        # A page that the two other nodes own.
        each = (digest_of(f"page {number}") for number in range(1000))
        self.digest = next(d for d in each if set(self.engine.owners(d)) == {B, C})

    def set(self, left_s: float = 10.0) -> int:
        def done() -> None:
            self.answered += 1

        self.publisher.publish(self.engine.set_page(self.digest), 0.0, left_s, done)
        return max((ticket for _, ticket in self.streams.tickets), default=0)


@pytest.fixture
def node() -> Node:
    return Node()


def test_a_set_is_answered_when_all_its_owners_have_the_record(node: Node) -> None:
    ticket = node.set()
    node.pending.acknowledged(B, [ticket])
    assert node.answered == 0
    node.pending.acknowledged(C, [ticket])
    assert node.answered == 1
    assert node.digest in node.engine.published
    node.pending.acknowledged(C, [ticket])
    assert node.answered == 1, "once"
    assert node.pending.idle


def test_nobody_waits_for_an_owner_that_is_suspect(node: Node) -> None:
    ticket = node.set()
    node.pending.acknowledged(B, [ticket])
    node.pending.stop_waiting_for(C)
    assert node.answered == 1
    assert node.digest in node.engine.published, "b has it"
    assert node.pending.idle


def test_without_any_owner_a_set_is_answered_and_counted(node: Node) -> None:
    node.streams.up = {B: False, C: False}
    node.set()
    assert node.answered == 1
    assert node.pending.unreached == 1
    assert node.engine.published == set()


def test_overdue_set_is_answered_and_the_late_owner_named(node: Node) -> None:
    ticket = node.set()
    node.pending.acknowledged(B, [ticket])
    assert node.pending.expire(TIMEOUT_S - 0.01) == set()
    assert node.pending.expire(TIMEOUT_S) == {C}
    assert node.answered == 1
    assert node.pending.timeouts == 1
    assert node.pending.idle


def test_an_impatient_worker_proves_nothing_about_an_owner(node: Node) -> None:
    node.set(left_s=0.1)
    assert node.pending.expire(0.1) == set()
    assert node.answered == 1


def test_a_broken_stream_is_not_waited_for(node: Node) -> None:
    ticket = node.set()
    node.pending.lost(B, [ticket])
    assert node.answered == 0
    node.pending.lost(C, [ticket])
    assert node.answered == 1
    assert node.pending.unreached == 1


def test_take_back_waits_for_records_already_in_flight(node: Node) -> None:
    told: list[set[int]] = []
    node.publisher.take_back(b"", 0.0, 10.0, told.append)
    assert told == [set()], "nothing is"
    node.streams.busy = [B, C]
    node.publisher.take_back(b"", 0.0, 10.0, told.append)
    assert {owner for owner, _ in node.streams.tickets} == {B, C}
    ticket = node.streams.tickets[-1][1]
    node.pending.acknowledged(B, [ticket])
    assert len(told) == 1
    node.pending.lost(C, [ticket])
    assert told[1:] == [{C}]
    assert node.pending.unreached == 0, "there was nothing to reach it with"


def test_take_back_reports_owners_that_may_lack_the_withdrawal(node: Node) -> None:
    told: list[set[int]] = []
    node.set()
    row = node.engine.drop_page(node.digest)
    node.streams.up[B] = False
    node.publisher.take_back(row, 0.0, 10.0, told.append)
    ticket = node.streams.tickets[-1][1]
    node.pending.acknowledged(C, [ticket])
    assert told.pop() == {B}, "it is not connected"
    node.streams.up[B] = True
    node.publisher.take_back(b"", 0.0, 10.0, told.append)
    assert told.pop() == set()
    node.streams.doubted = [C]
    node.publisher.take_back(b"", 0.0, 10.0, told.append)
    assert told.pop() == {C}, "it may have records that we do not know of"
    node.streams.doubted = []
    node.local.resync()
    node.publisher.take_back(b"", 0.0, 10.0, told.append)
    assert told.pop() == {SELF}, "changes were lost before they came to our own shard"
    node.local.exact = True
    node.streams.busy = [B]
    node.publisher.take_back(b"", 0.0, 10.0, told.append)
    node.pending.expire(TIMEOUT_S)
    assert told.pop() == {B}, "it takes too long"


@pytest.mark.parametrize(
    "exact, connected, suspect, at_rest", list(product([True, False], repeat=4))
)
def test_only_an_exact_connected_resting_owner_is_neither_asked_nor_doubted(
    exact: bool, connected: bool, suspect: bool, at_rest: bool
) -> None:
    stream = SimpleNamespace(exact=exact, connected=connected, at_rest=at_rest)
    streams = object.__new__(PeerStreams)
    streams._lines = cast(
        Any, {B: SimpleNamespace(stream=stream, node=SimpleNamespace(suspect=suspect))}
    )
    asked, doubted = streams.under_way(), streams.doubtful()
    assert (not asked and not doubted) is (exact and connected and at_rest)
    assert not (asked and suspect), "nobody waits for it"
