"""Whom a full node asks, how often, and within which budget."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

from peercached.directory.placement import Node
from peercached.membership import NodeAddress
from peercached.peer.handover.giver import ELSEWHERE, REST_MAX_S, Giver
from peercached.peer.handover.parts import Answer, Part
from peercached.peer.handover.rests import REST_FIRST_S
from peercached.peer.handover.spill import Spill

PAGE_BYTES = 1 << 20


def digest(number: int) -> bytes:
    return number.to_bytes(16, "little")


def row(number: int) -> bytes:
    return digest(number) + bytes(20) + PAGE_BYTES.to_bytes(4, "little") + bytes(8)


class Cluster:
    """A full node and its two peers. `answers` has what each says to its offers."""

    def __init__(self, pages: int, bytes_per_s: int = 1 << 30, own: str = "a") -> None:
        self.cold = [digest(number) for number in range(pages)]
        self.duplicates: dict[str, set[bytes]] = {}  # by holder
        self.moves = dict.fromkeys(self.cold, 0)
        self.withdrawn = b""
        self.evicted_meanwhile = 0  # pages that had gone when the peer had taken them
        self.offered: list[bytes] = []  # under way
        self.asked: list[tuple[str, int]] = []  # peer, pages
        self.answers: dict[str, Answer] = {}  # default: it takes all
        names = [own, *(name for name in "abc" if name != own)]
        nodes = {i: Node(i, NodeAddress(name, i + 1, name, 1, 2)) for i, name in enumerate(names)}
        placement = SimpleNamespace(nodes=nodes, own=nodes[0])
        self.giver = Giver(
            cast(Any, self),
            cast(Any, placement),
            cast(Any, self),
            withdraw=self._withdraw,
            drop=self._drop,
        )
        self.spill = Spill(
            cast(Any, self),
            cast(Any, placement),
            cast(Any, self),
            self.giver,
            may_give=lambda: True,
            pool_bytes=1 << 30,
            bytes_per_s=lambda: bytes_per_s,
        )

    # --- the engine

    def evicts_within(self, bytes: int) -> bool:
        del bytes
        return True

    def coldest(self, bytes: int) -> tuple[list[tuple[Any, ...]], int]:
        del bytes
        each = (int.from_bytes(one, "little") for one in self.cold if self.moves[one] < 2)
        rows = b"".join(map(row, each))
        return [(b"ns", 0, 1000, 0, rows)] if rows else [], 0

    async def _withdraw(self, records: bytes, unless_pinned: bool) -> int:
        assert unless_pinned
        self.withdrawn += records
        return len(records) // len(row(0)) - self.evicted_meanwhile

    async def _drop(self, records: bytes) -> None:
        self.withdrawn += records

    def begin_offer(self, records: bytes) -> None:
        self.offered.append(records)

    def end_offer(self, records: bytes) -> None:
        self.offered.remove(records)

    def set_moves(self, digests: bytes, moves: int) -> None:
        for at in range(0, len(digests), 16):
            self.moves[digests[at : at + 16]] = moves

    # --- the directory

    async def held_elsewhere(
        self, part: Part, nodes: Sequence[Node], in_memory: bool
    ) -> Mapping[Node, Any]:
        assert in_memory
        return {
            node: {one: row for one, row in part.rows.items() if one in held}
            for node in nodes
            if (held := self.duplicates.get(node.address.node_id))
        }

    # --- the peers

    async def offer(self, node: Node, part: Part, rows: Mapping[bytes, bytes]) -> Answer:
        assert part.spilled
        assert b"".join(rows.values()) in self.offered, "the engine must know before the peer does"
        name = node.address.node_id
        self.asked.append((name, len(rows)))
        return self.answers.get(name, Answer(taken=list(rows)))

    async def tend(self, after_s: float = 1.0) -> None:
        self.spill.tend(time.monotonic() + after_s)
        task = self.spill._task
        if task is not None:
            await task
        assert not self.offered, "offers end, whatever the peer says"


def told(cluster: Cluster) -> dict[str, int]:
    found: dict[str, int] = cluster.spill.sections({})["spill"]
    return found


def test_of_two_holders_one_keeps_a_page_and_the_other_lets_it_go() -> None:
    async def claim() -> None:
        one, other = Cluster(pages=100), Cluster(pages=100, own="b")
        for cluster in (one, other):
            cluster.duplicates = {"a": set(cluster.cold), "b": set(cluster.cold)}
            await cluster.tend()
        assert told(one)["pages"] == told(other)["duplicates"]
        assert told(other)["pages"] == told(one)["duplicates"]
        assert 20 < told(one)["pages"] < 80

    asyncio.run(claim())


def test_full_peers_are_asked_less_and_less() -> None:
    async def claim() -> None:
        cluster = Cluster(pages=10)
        cluster.answers = dict.fromkeys("bc", Answer(why_not="full", full=True))
        await cluster.tend()
        assert sorted(cluster.asked) == [("b", 10), ("c", 10)]
        for _ in range(20):
            await cluster.tend(0.0)
        assert len(cluster.asked) == 2, f"asked again within {REST_FIRST_S} s"
        rests = cluster.giver._rests._rests
        for _ in range(12):
            for rest in rests.values():
                rest.until = 0.0
            await cluster.tend(0.0)
        assert {rest.pause_s for rest in rests.values()} == {REST_MAX_S}
        assert told(cluster)["pages"] == 0

    asyncio.run(claim())


def test_what_one_peer_refuses_goes_to_the_next() -> None:
    async def claim() -> None:
        cluster = Cluster(pages=10)
        some = Answer(taken=[digest(0), digest(1)], why_not="full", full=True)
        cluster.answers = {"b": some}
        await cluster.tend()
        assert told(cluster)["pages"] == 10
        assert set(cluster.moves.values()) == {ELSEWHERE}

    asyncio.run(claim())


def test_only_pages_that_leave_this_pool_count_as_spilled() -> None:
    async def claim() -> None:
        cluster = Cluster(pages=10)
        cluster.evicted_meanwhile = 3
        await cluster.tend()
        assert told(cluster)["pages"] == 7
        assert told(cluster)["bytes"] == 10 * PAGE_BYTES, "the peer has read all"

    asyncio.run(claim())


def test_budget_bounds_what_moves() -> None:
    async def claim() -> None:
        cluster = Cluster(pages=10, bytes_per_s=PAGE_BYTES)
        await cluster.tend()
        moved = told(cluster)["bytes"]
        assert moved == 10 * PAGE_BYTES, "a part may be larger than what is left"
        cluster.moves = dict.fromkeys(cluster.cold, 0)
        await cluster.tend(5.0)
        assert told(cluster)["bytes"] == moved, "it pays for that first"
        await cluster.tend(20.0)
        assert told(cluster)["bytes"] == 2 * moved

    asyncio.run(claim())


def test_without_a_budget_nobody_is_asked() -> None:
    async def claim() -> None:
        cluster = Cluster(pages=10, bytes_per_s=0)
        await cluster.tend()
        assert not cluster.asked

    asyncio.run(claim())
