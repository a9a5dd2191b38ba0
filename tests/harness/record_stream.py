"""A HolderStream and an OwnerSide, with a test-controlled wire between them."""

from __future__ import annotations

from collections import deque
from itertools import count
from typing import Any, cast

from harness.fake_engine import FakeEngine, FakeNative, build_ring, digest_of
from peercached.directory.messages import Ack, Batch
from peercached.directory.owner import OwnerSide
from peercached.directory.stream import HolderStream

HOLDER_AT_OWNER = OWNER_AT_HOLDER = 1
# (digest, generation). Defined here because inside Pair the name `set` is its method.
Records = set[tuple[bytes, int]]


def pages(count: int, prefix: str = "p") -> list[bytes]:
    """The digests of `count` pages."""
    return [digest_of(f"{prefix}{i}") for i in range(count)]


class Pair:
    """Node "h" holds pages and node "o" owns some of them. Each record has `replicas` owners."""

    def __init__(self, replicas: int = 2) -> None:
        self.replicas = replicas
        self.view = 1
        self.epochs = count(1)
        self.now = 0.0
        self.fence = 0
        self.holder = FakeEngine()
        self.done: list[int] = []
        self.to_owner: deque[Batch] = deque()
        self.to_holder: deque[Ack] = deque()
        assert self.holder.add_node("o", 1) == OWNER_AT_HOLDER
        self.holder.set_ring(*build_ring({"h": 0, "o": 1}), replicas)
        self.stream = HolderStream(FakeNative(), OWNER_AT_HOLDER, self.view, lambda: self.fence)
        self.new_owner()

    def new_owner(self) -> None:
        self.owner = FakeEngine()
        assert self.owner.add_node("h", 1) == HOLDER_AT_OWNER
        self.owner.set_ring(*build_ring({"h": 1, "o": 0}), self.replicas)
        self.side = OwnerSide(cast(Any, self.owner))
        self.side.set_view(self.view, [HOLDER_AT_OWNER])
        self.side.own_records_in_sync(self.view)

    def connect(self) -> None:
        self.stream.connect(next(self.epochs))

    def reconnect(self) -> list[int]:
        lost = self.stream.disconnect()
        self.side.closed(HOLDER_AT_OWNER, self.side_epoch)
        self.to_owner.clear()
        self.to_holder.clear()
        self.connect()
        return lost

    @property
    def side_epoch(self) -> int:
        return self.side._holders[HOLDER_AT_OWNER].epoch

    def scan(self) -> None:
        """Answers the stream's requests for pool contents from the current pool."""
        while (want := self.stream.wanted()) is not None:
            self.stream.scanning(want)
            if want.mask:
                as_of, rows = self.holder.pool_rows(OWNER_AT_HOLDER, want.mask)
                self.stream.give_rows(want.attempt, as_of, dict(FakeNative.split_buckets(rows)))
            else:
                as_of, summaries = self.holder.pool_summaries()
                empty = bytes(4096)
                summary = summaries.get(OWNER_AT_HOLDER, empty)
                self.stream.give_summary(want.attempt, as_of, summary)

    def send(self) -> None:
        while (batch := self.stream.next_batch(self.now)) is not None:
            self.to_owner.append(batch)

    def deliver(self) -> None:
        while self.to_owner:
            ack = self.side.batch(HOLDER_AT_OWNER, self.to_owner.popleft())
            if ack is not None:
                self.to_holder.append(ack)

    def acknowledge(self) -> None:
        while self.to_holder:
            self.done += self.stream.ack(self.to_holder.popleft())

    def settle(self) -> None:
        """Delivers everything in order and without loss until nothing is left to send."""
        for _ in range(10_000):
            self.scan()
            self.send()
            if not self.to_owner and not self.to_holder:
                return
            self.deliver()
            self.acknowledge()
        raise AssertionError("the stream does not come to rest")

    def set(self, digest: bytes, ticket: int = 0) -> bool:
        return self.stream.offer(self.holder.set_page(digest), ticket)

    def evict(self, digest: bytes) -> None:
        self.stream.offer(self.holder.drop_page(digest))

    @property
    def at_owner(self) -> Records:
        return {(d, row[2]) for (d, h), row in self.owner.shard.items() if h == HOLDER_AT_OWNER}

    @property
    def in_pool(self) -> Records:
        return {
            (digest, generation)
            for digest, (generation, _) in self.holder.pool.items()
            if OWNER_AT_HOLDER in self.holder.owners(digest)
        }
