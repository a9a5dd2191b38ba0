"""The peers that a full node asks, how often, and its budget."""

import asyncio
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

from peercached.directory.placement import Node
from peercached.health import Findings
from peercached.membership import NodeAddress
from peercached.peer.handover.giver import ELSEWHERE, REST_MAX_S, Giver
from peercached.peer.handover.parts import ADOPTS_MAX, OFFERS_MAX, Answer, Part
from peercached.peer.handover.rests import REST_FIRST_S
from peercached.peer.handover.spill import AHEAD_LOSING, AHEAD_LOSING_MAX, AHEAD_MIN, Spill

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
        self.set_bytes = self.free_bytes = self.lost_bytes = 0
        self.part_pages = pages
        self.may_give_offers = 1 << 30
        self.looked_ahead: list[int] = []  # bytes
        self.at_once: Counter[str] = Counter()  # parts under way, by peer
        self.most_at_once: Counter[str] = Counter()
        self.asked: list[tuple[str, int]] = []  # peer, pages
        self.answers: dict[str, Answer] = {}  # default: it takes all
        names = [own, *(name for name in "abc" if name != own)]
        nodes = {i: Node(i, NodeAddress(name, i + 1, name, 1, 2)) for i, name in enumerate(names)}
        placement = SimpleNamespace(nodes=nodes, own=nodes[0])
        self.peers = [nodes[1], nodes[2]]
        config = SimpleNamespace(pool_size=1 << 30, spill_bytes_per_s=bytes_per_s)
        self.giver = Giver(
            cast(Any, self),
            cast(Any, placement),
            cast(Any, self),
            cast(Any, self),
        )
        self.spill = Spill(
            cast(Any, self),
            cast(Any, placement),
            cast(Any, self),
            self.giver,
            cast(Any, self),
            cast(Any, SimpleNamespace(config=config)),
        )

    # --- the drain

    @property
    def may_move_pages(self) -> bool:
        return len(self.asked) < self.may_give_offers

    # --- the engine

    def filling(self) -> tuple[int, int, int]:
        return self.set_bytes, self.free_bytes, self.lost_bytes

    def coldest(self, bytes: int) -> tuple[list[tuple[Any, ...]], int]:
        self.looked_ahead.append(bytes)
        rows = [row(int.from_bytes(one, "little")) for one in self.cold if self.moves[one] < 2]
        parts = [rows[at : at + self.part_pages] for at in range(0, len(rows), self.part_pages)]
        return [(b"ns", 0, 1000, 0, b"".join(part)) for part in parts], 0

    async def withdraw(self, records: bytes, unless_pinned: bool) -> int:
        assert unless_pinned
        self.withdrawn += records
        return len(records) // len(row(0)) - self.evicted_meanwhile

    async def drop(self, records: bytes) -> None:
        self.withdrawn += records

    def begin_offer(self, records: bytes) -> None:
        self.offered.append(records)

    def end_offer(self, records: bytes) -> None:
        self.offered.remove(records)

    def set_moves(self, digests: bytes, moves: int) -> None:
        for at in range(0, len(digests), 16):
            self.moves[digests[at : at + 16]] = moves

    # --- the directory

    async def present_elsewhere(
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
        name = node.address.node_id
        assert part.spilled
        assert b"".join(rows.values()) in self.offered, "the engine must know before the peer does"
        self.asked.append((name, len(rows)))
        self.at_once[name] += 1
        self.most_at_once |= self.at_once
        self.most_at_once["all"] = max(self.most_at_once["all"], self.at_once.total())
        for _ in range(50):  # turns of the loop, so that others begin meanwhile
            await asyncio.sleep(0)
        self.at_once[name] -= 1
        answer = self.answers.get(name, Answer(taken=list(rows)))
        return replace(answer, taken=[digest for digest in answer.taken if digest in rows])

    def knows_room(self, free_bytes: int) -> None:
        self.giver._rooms = dict.fromkeys(self.peers, (free_bytes, 0))

    async def tend(self, after_s: float = 1.0) -> None:
        self.spill.tend(time.monotonic() + after_s)
        task = self.spill._task
        if task is not None:
            await task
        assert not self.offered, "offers end, whatever the peer says"


def told(cluster: Cluster) -> dict[str, int]:
    found: dict[str, int] = cluster.spill.sections({})["spill"]
    return found


async def test_of_two_holders_one_keeps_a_page_and_the_other_lets_it_go() -> None:
    one, other = Cluster(pages=100), Cluster(pages=100, own="b")
    for cluster in (one, other):
        cluster.duplicates = {"a": set(cluster.cold), "b": set(cluster.cold)}
        await cluster.tend()
    assert told(one)["pages"] == told(other)["duplicates"]
    assert told(other)["pages"] == told(one)["duplicates"]
    assert 20 < told(one)["pages"] < 80


async def test_full_peers_are_asked_less_and_less() -> None:
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


async def test_pages_that_one_peer_refuses_go_to_the_next() -> None:
    cluster = Cluster(pages=10)
    some = Answer(taken=[digest(0), digest(1)], why_not="full", full=True)
    cluster.answers = {"b": some}
    await cluster.tend()
    assert told(cluster)["pages"] == 10
    assert set(cluster.moves.values()) == {ELSEWHERE}


async def test_only_pages_that_leave_this_pool_count_as_spilled() -> None:
    cluster = Cluster(pages=10)
    cluster.evicted_meanwhile = 3
    await cluster.tend()
    assert told(cluster)["pages"] == 7
    assert told(cluster)["bytes"] == 10 * PAGE_BYTES, "the peer has read all"


async def test_budget_bounds_what_moves() -> None:
    cluster = Cluster(pages=10, bytes_per_s=PAGE_BYTES)
    cluster.knows_room(0)
    await cluster.tend()
    moved = told(cluster)["bytes"]
    assert moved == 10 * PAGE_BYTES, "a part may be larger than what is left"
    cluster.moves = dict.fromkeys(cluster.cold, 0)
    await cluster.tend(5.0)
    assert told(cluster)["bytes"] == moved, "it pays for that first"
    await cluster.tend(20.0)
    assert told(cluster)["bytes"] == 2 * moved


async def test_only_moves_that_displace_pages_are_charged_to_the_budget() -> None:
    cluster = Cluster(pages=10, bytes_per_s=PAGE_BYTES)
    cluster.answers = dict.fromkeys("bc", Answer(taken=cluster.cold, free_bytes=1 << 30))
    cluster.knows_room(1 << 30)
    for pages in 10, 20, 30:
        cluster.moves = dict.fromkeys(cluster.cold, 0)
        await cluster.tend()
        assert told(cluster)["pages"] == pages
    cluster.answers = {}  # they are full from now on
    cluster.knows_room(0)
    for _ in range(3):
        cluster.moves = dict.fromkeys(cluster.cold, 0)
        await cluster.tend()
    assert told(cluster)["pages"] == 40, "the first move that displaces pages uses up all"
    cluster.knows_room(1 << 30)
    cluster.moves = dict.fromkeys(cluster.cold, 0)
    await cluster.tend(0.0)
    assert told(cluster)["pages"] == 50


async def test_parts_go_to_all_peers_with_room_at_a_time_and_no_more_than_each_takes() -> None:
    cluster = Cluster(pages=64)
    room = Answer(taken=cluster.cold, free_bytes=1 << 30)
    cluster.answers = {"b": room, "c": replace(room, free_bytes=1 << 29)}
    cluster.knows_room(1 << 30)
    cluster.part_pages = 1
    await cluster.tend()
    assert cluster.most_at_once["b"] == cluster.most_at_once["c"] == ADOPTS_MAX
    cluster.peers.pop().suspect = True
    cluster.moves = dict.fromkeys(cluster.cold, 0)
    cluster.most_at_once.clear()
    await cluster.tend()
    assert told(cluster)["pages"] == 128
    assert cluster.most_at_once["all"] == ADOPTS_MAX


async def test_it_looks_ahead_as_far_as_sets_came_lately_and_a_peer_has_more_room() -> None:
    cluster = Cluster(pages=10)
    cluster.spill.tend(time.monotonic())
    cluster.knows_room(1 << 30)
    cluster.set_bytes = 200 << 20
    cluster.free_bytes = 190 << 20
    await cluster.tend()
    assert (150 << 20) < cluster.looked_ahead[0] < (250 << 20)
    cluster.knows_room(0)
    cluster.free_bytes, cluster.moves = 0, dict.fromkeys(cluster.cold, 0)
    await cluster.tend(0.0)
    assert cluster.looked_ahead[-1] == int(AHEAD_MIN * (1 << 30)), "all are full"
    for set_bytes, ahead in (150 << 20, AHEAD_LOSING), (2 << 30, AHEAD_LOSING_MAX):
        cluster.set_bytes += set_bytes
        cluster.lost_bytes += 1
        cluster.moves = dict.fromkeys(cluster.cold, 0)
        await cluster.tend(1.0)
        assert cluster.looked_ahead[-1] == int(ahead * (1 << 30))


async def test_status_says_that_pages_are_lost_while_a_peer_has_room() -> None:
    def found(cluster: Cluster) -> list[str]:
        findings = Findings()
        cluster.spill.say(findings.say, {})
        return [each["sentence"] for each in findings.document()]

    cluster = Cluster(pages=10)
    for room_bytes in 0, 10 << 20:
        cluster.lost_bytes += 64 << 20
        cluster.knows_room(room_bytes)
        await cluster.tend(0.0)
        assert not found(cluster), "as good as full, as far as we know"
    cluster.lost_bytes += 64 << 20
    cluster.knows_room(100 << 20)
    await cluster.tend(0.0)
    (sentence,) = found(cluster)
    assert "evicted 64 MiB" in sentence
    assert "100 MiB free" in sentence


async def test_a_round_ends_when_the_node_may_give_no_more() -> None:
    cluster = Cluster(pages=64)
    cluster.part_pages = 1
    cluster.spill.tend(time.monotonic() + 1.0)
    cluster.may_give_offers = 1
    await cluster.tend()
    assert len(cluster.asked) <= OFFERS_MAX


async def test_without_a_budget_nobody_is_asked() -> None:
    cluster = Cluster(pages=10, bytes_per_s=0)
    await cluster.tend()
    assert not cluster.asked
