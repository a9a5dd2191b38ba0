"""Clusters with small pools: full nodes give pages to the others. `play(seed)` tells one
story: some nodes set pages, all read, and a node dies, joins or drains in the middle."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from typing import Any

from harness.fake_engine import build_ring, digest_of, unpack_rows

from peercached.config import Config
from peercached.peer.handover.giver import ELSEWHERE
from sim.cluster import DataPlane, SimCluster, SimNode
from sim.engine import SimEngine

PAGE_BYTES = 64 << 10
POOL_PAGES = 64
BYTES_PER_S = 2 << 20
IDLE_TIMES = 1.2  # native/engine/handover/handover.h
MOVES_MAX = 2
# A node that spills looks up every page on a thread. Longer delays would limit how much it spills.
THREAD_S = 0.005


@dataclass(slots=True)
class Slot:
    touched: float
    moves: int = 0


class SmallPool(SimEngine):
    """Evicts the page that was used longest ago. Like the native pool, it takes a page of a full
    node only if there is room, or if its own coldest page is much older."""

    def __init__(self, node: SimNode) -> None:
        super().__init__(node)
        self.slots: dict[bytes, Slot] = {}
        self._arriving: dict[bytes, Slot] = {}
        self.set_bytes = 0  # by workers
        self.lost_bytes = 0  # by evictions

    def set_page(self, digest: bytes, length: int = PAGE_BYTES) -> bytes:
        while digest not in self.pool and len(self.pool) >= POOL_PAGES:
            coldest = min(self.slots, key=self._age_order)
            self.lost_bytes += 0 if self.slots[coldest].moves == ELSEWHERE else PAGE_BYTES
            self._cluster.evicts(self._node, coldest)
        self.set_bytes += 0 if digest in self._arriving else length
        self.slots[digest] = self._arriving.pop(digest, Slot(self._node.clock))
        return super().set_page(digest, length)

    def drop_page(self, digest: bytes) -> bytes:
        self.slots.pop(digest, None)
        return super().drop_page(digest)

    def get(self, digests: list[bytes], done: Any) -> None:
        for digest in digests:
            if digest in self.slots:
                self.slots[digest] = Slot(self._node.clock)
        super().get(digests, done)

    def coldest_idle_s(self) -> float:
        return self._node.clock - min((slot.touched for slot in self.slots.values()), default=0)

    # --- spill

    def filling(self) -> tuple[int, int, int]:
        return self.set_bytes, (POOL_PAGES - len(self.pool)) * PAGE_BYTES, self.lost_bytes

    def coldest(self, bytes: int) -> tuple[list[tuple[bytes, int, int, int, bytes]], int]:
        """A page a part."""
        count = max(len(self.pool) + bytes // PAGE_BYTES - POOL_PAGES, 0)
        next_ones = sorted(self.slots, key=self._age_order)[:count]
        return [self._part(d) for d in next_ones if self.slots[d].moves < MOVES_MAX], 0

    def set_moves(self, digests: bytes, moves: int) -> None:
        for at in range(0, len(digests), 16):
            if slot := self.slots.get(digests[at : at + 16]):
                slot.moves = moves

    def adopt(self, holder: int, *offer: Any) -> asyncio.Future[tuple[bytes, str, bool, int, int]]:
        _, _, idle_ms, moves, spilled, rows, _ = offer
        missing = [row[0] for row in unpack_rows(rows) if row[0] not in self.pool]
        is_full = len(self.pool) + len(missing) > POOL_PAGES
        if is_full and self.coldest_idle_s() <= IDLE_TIMES * idle_ms / 1000:
            refused: asyncio.Future[tuple[bytes, str, bool, int, int]]
            refused = asyncio.get_running_loop().create_future()
            refused.set_result((b"", "its pool is full of younger pages", True, *self._room()))
            return refused
        for digest in missing:
            touched = self._node.clock - idle_ms / 1000
            self._arriving[digest] = Slot(touched, moves + int(spilled))
        return super().adopt(holder, *offer)

    @property
    def _cluster(self) -> SpillCluster:
        assert isinstance(self._node.cluster, SpillCluster)
        return self._node.cluster

    def _age_order(self, digest: bytes) -> float:
        return self.slots[digest].touched

    def _part(self, digest: bytes) -> tuple[bytes, int, int, int, bytes]:
        slot = self.slots[digest]
        idle_ms = round(1000 * (self._node.clock - slot.touched))
        return digest_of("ns"), 0, idle_ms, slot.moves, self._row(digest)

    def _room(self) -> tuple[int, int]:
        free = (POOL_PAGES - len(self.pool)) * PAGE_BYTES
        return max(free, 0), round(1000 * self.coldest_idle_s())


class SpillCluster(SimCluster):
    """`lost`: pages that lost their last copy to eviction."""

    def __init__(self, seed: int, nodes: int, **more: Any) -> None:
        super().__init__(seed, nodes, pools=(POOL_PAGES * PAGE_BYTES,), **more)
        self.loop.thread_s = THREAD_S
        self.lost = self.evicted = 0

    def settings(self, name: str) -> dict[str, Any]:
        return {"spill_bytes_per_s": BYTES_PER_S}

    def data_plane(self, node: SimNode, config: Config, incarnation: int) -> DataPlane:
        del config, incarnation
        return DataPlane(SmallPool(node), build_ring)

    def evicts(self, node: SimNode, digest: bytes) -> None:
        self.evicted += 1
        others = (n.engine for n in self.readers() if n is not node)
        self.lost += not any(digest in one.pool for one in others)
        node.engine.evict(digest)


@dataclass
class Story:
    cluster: SpillCluster
    seconds: float = 0.0
    set: list[bytes] = field(default_factory=list)  # in order
    found: int = 0
    asked: int = 0
    given: int = 0  # pages that left a node by spill

    def moves(self) -> int:
        """The most often that a page has moved since its last use."""
        engines = (node.engine for node in self.cluster.nodes.values())
        return max(
            slot.moves
            for engine in engines
            if isinstance(engine, SmallPool)
            for slot in engine.slots.values()
            if slot.moves != ELSEWHERE
        )

    def held(self) -> int:
        """Different pages that the cluster holds."""
        return len({d for node in self.cluster.nodes.values() for d in node.engine.pool})


def play(seed: int, writers: int = 2, nodes: int = 4, rate: float = 8.0, fate: str = "") -> Story:
    """`rate`: pages that each writer sets a second. `fate`: "dies", "joins" or "drains"."""
    rng = random.Random(seed)
    cluster = SpillCluster(seed, nodes)
    with cluster:
        cluster.run(5.0)
        story = Story(cluster)
        pages = 3 * nodes * POOL_PAGES // 2
        for number in range(pages // writers):
            for name in cluster.names[:writers]:
                digest = digest_of(f"page {number} of {name}")
                cluster.nodes[name].set_page(digest)
                story.set.append(digest)
            if number == pages // writers // 2:
                _bring(cluster, fate)
            _read(story, rng)
            cluster.run(1.0 / rate)
        story.seconds = cluster.net.now
        given = -1
        while given != story.given:
            given = story.given
            cluster.run(5.0)  # until what moves has arrived, and its copy has gone
            story.given = sum(map(_given, cluster.readers()))
        if not fate:
            cluster.check_quiet()
    return story


def _given(node: SimNode) -> int:
    return int(node.ask(lambda: node.daemon.handover.spill.sections({}))["spill"]["pages"])


def _bring(cluster: SpillCluster, fate: str) -> None:
    last = cluster.names[-1]
    if fate == "dies":
        cluster.crash(last)
    elif fate == "drains":
        cluster.leave(last, drain=True)
    elif fate == "joins":
        cluster.names.append("n9999")
        cluster.start("n9999")


def _read(story: Story, rng: random.Random) -> None:
    """Some node asks for a page that was set a moment ago."""
    recent = story.set[-POOL_PAGES:-8]
    if not recent:
        return
    wanted = [rng.choice(recent)]
    reader = rng.choice(story.cluster.readers())

    def done(got: set[bytes]) -> None:
        story.asked += 1
        story.found += len(got)

    reader.get(wanted, done)
