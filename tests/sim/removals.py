"""Sets, removes and reads pages at random nodes under random faults, in virtual time. A read that
begins after a removal was answered must not return a page set before that removal.

A page's version is its length. Daemons have disks here: their pages, their journals and their
removal state survive restarts. The daemons' own Removals and RemovalCatchUp do the work.
"""

from __future__ import annotations

import random
from collections import defaultdict
from contextlib import ExitStack
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

from harness.fake_engine import RESIDENT, digest_of, unpack_rows
from harness.history import History, Span

from peercache_client import Status
from peercached.config import Config
from peercached.peer.removals.vanished_processes import Ended, Found
from peercached.removals.processes import Process
from peercached.removals.store import Remembered
from sim.chaos import members_trouble
from sim.cluster import DataPlane, SimCluster, SimNode
from sim.loop import this_process
from sim.members import TIMING

TTL_S = TIMING.member_ttl_s
KEYS = [digest_of(f"key {number}") for number in range(12)]
ANSWER_S = 2.0  # of a worker's call
# After the last fault every removal ends within this time, even if the node that drove it has
# forgotten it and another member must continue.
OVER_S = 60.0


@dataclass
class Disk:
    """The disk of one node, which survives its restarts."""

    pool: dict[bytes, int] = field(default_factory=dict)  # digest -> version
    journal: list[bytes] = field(default_factory=list)
    floor: int = 0
    remembered: Remembered = field(default_factory=Remembered)


class DiskStore:
    """Replaces RemovalStore."""

    problem = ""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def load(self) -> Remembered:
        return deepcopy(self._disk.remembered)

    def save(self, state: Remembered) -> bool:
        self._disk.remembered = state
        return True


def replace_ended(cluster: SimCluster, stack: ExitStack) -> None:
    async def find(_: Any, process: Process) -> Found:
        """The answer of the process's host to a connection attempt."""
        asker = this_process().name
        there = cluster.nodes.get(process.node_id)
        cut = {(asker, process.node_id), (process.node_id, asker)} & cluster.net.cuts
        if cut or cluster.dark(process.node_id):
            return Found.NO_ANSWER
        return Found.ENDED if there is None else Found.LISTENING

    stack.enter_context(mock.patch.object(Ended, "_ask", find))


def check_over(cluster: SimCluster) -> None:
    """After a long quiet time no removal is running, and no node owes."""
    for node in cluster.nodes.values():
        found = node.removals_status()
        assert found["running"] == found["unsure"] == 0, f"{node.name}: {found}"
        assert not found["owes"], f"{node.name} waits for {found['held_back_for']}"


class RemovalsCluster(SimCluster):
    """A SimCluster of nodes with disks, and their workers."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.disks: dict[str, Disk] = defaultdict(Disk)
        self.history = History()
        self.started: dict[str, float] = {}  # when each node last started

    def _replace(self, stack: Any) -> None:
        super()._replace(stack)
        replace_ended(self, stack)
        stack.enter_context(
            mock.patch(
                "peercached.daemon.RemovalStore",
                lambda _, node_id, __: DiskStore(self.disks[node_id]),
            )
        )

    def start(self, name: str, cold: bool = False) -> SimNode:
        self.started[name] = self.net.now
        node = super().start(name, cold)
        disk, engine = self.disks[name], node.engine
        for digest, version in disk.pool.items():
            self.is_true(node, engine.set_page(digest, version))
        return node

    def data_plane(self, node: SimNode, config: Config, incarnation: int) -> DataPlane:
        plane, disk = super().data_plane(node, config, incarnation), self.disks[node.name]
        engine = plane.engine
        engine.journal, engine.journal_floor = disk.journal, disk.floor
        return plane

    def crash(self, name: str, machine: bool = False) -> None:
        engine, disk = self.nodes[name].engine, self.disks[name]
        held = {digest: length for digest, (_, length) in engine.pool.items()}
        disk.pool, disk.floor = {**engine.hidden, **held}, engine.journal_floor
        super().crash(name, machine)

    # --- workers

    def somebody_works(self, rng: random.Random) -> None:
        nodes = [n for n in self.nodes.values() if n.answers() and n.engine.serves]
        if not nodes:
            return
        node, digest = rng.choice(nodes), rng.choice(KEYS)
        self.history.operations += 1
        chance = rng.random()
        if chance < 0.35:
            self.set(node, digest)
        elif chance < 0.5:
            self.remove(node, digest)
        else:
            self.read(node, digest, rng.random() < 0.5)

    def set(self, node: SimNode, digest: bytes) -> int:
        """Returns the version, or 0 if the engine refuses the set or has the page."""
        version, engine = self.history.begin_set(self.net.now), node.engine
        if digest in engine.removing or digest in engine.pool:
            return 0

        def done() -> None:
            self.history.sets[version].ended = self.net.now

        node.process.do(lambda: engine.publish(engine.set_page(digest, version), done))
        return version

    def remove(self, node: SimNode, digest: bytes) -> None:
        began = self.net.now

        async def removed() -> None:
            status, _, _ = await node.daemon.removal_driver.remove(digest, ANSWER_S, (bytes(16), 0))
            if status == Status.ok:
                members = frozenset(
                    known.address.incarnation for known in node.daemon.placement.nodes.values()
                )
                self.history.removed(digest, Span(began, self.net.now, members))

        node.process.do(lambda: self.loop.create_task(removed()))

    def read(self, node: SimNode, digest: bytes, one_sided: bool) -> None:
        """With `one_sided` it reads as RDMA does: from the memory of a process even if that
        hangs."""
        began, engine = self.net.now, node.engine
        if not engine.serving:
            return
        if (held := engine.pool.get(digest)) is not None:
            self.got(node, digest, held[1], began, node.name)
            return
        # Any other node may have a copy of the holder's records, so a read may go there without a
        # lookup.
        for known in node.daemon.placement.nodes.values():
            if known.index in engine.owing:
                continue
            self._read_there(node, known.address, digest, 0, began, one_sided)

        async def look() -> None:
            rows = await node.daemon.records.find(digest, ANSWER_S)
            for _, _, generation, _, _, holder, flags in unpack_rows(rows):
                named = node.daemon.placement.nodes.get(holder)
                if named is not None and flags & RESIDENT and holder not in engine.owing:
                    self._read_there(node, named.address, digest, generation, began, one_sided)

        node.process.do(lambda: self.loop.create_task(look()))

    def got(self, holder: SimNode, digest: bytes, version: int, began: float, where: str) -> None:
        cut_off = 0
        in_this_start = self.history.sets[version].began >= self.started[holder.name]
        if in_this_start and holder.daemon.removals.owes:
            cut_off = holder.address.incarnation
        self.history.read(digest, version, began, where, cut_off)

    def _read_there(
        self, node: SimNode, address: Any, digest: bytes, generation: int, began: float, now: bool
    ) -> None:
        """A `generation` of 0 accepts any."""

        def look() -> None:
            there = self.process(address)
            if there is None or not there.engine.serving:
                return
            held = there.engine.pool.get(digest)
            if held is not None and generation in (0, held[0]):
                self.got(there, digest, held[1], began, f"{node.name} at {address.node_id}")

        def asked() -> None:
            there = self.process(address)
            if there is not None and now:
                look()
            elif there is not None:
                there.process.do(look)

        self.net.carry(node.name, address.node_id, asked)


def removed(seed: int, size: int = 0) -> RemovalsCluster:
    rng = random.Random(seed)
    with RemovalsCluster(
        seed,
        size or rng.randint(2, 6),
        heads=rng.randint(1, 3),
        max_masters=rng.randint(1, 3),
        drop=rng.choice([0.0, 0.02]),
        double=rng.choice([0.0, 0.1]),
        delay_s=rng.choice([0.002, 0.02, 0.2]),
    ) as cluster:
        _removed(cluster, rng)
    return cluster


def _removed(cluster: RemovalsCluster, rng: random.Random) -> None:
    def step() -> None:
        for _ in range(rng.randint(5, 40)):
            cluster.somebody_works(rng)
            cluster.run(rng.expovariate(10.0))
        cluster.run(rng.choice([0.0, 0.0, 0.5 * TTL_S, 2 * TTL_S]))

    # Start only once all parts have met: before that they know nothing of each other's removals.
    cluster.until_agreed(20 * TTL_S)
    members_trouble(cluster, rng, 25, step)
    for name in cluster.names:
        if name not in cluster.nodes:
            cluster.start(name)
    cluster.until_agreed(20 * TTL_S)
    until = cluster.net.now + OVER_S
    while cluster.net.now < until:
        cluster.somebody_works(rng)
        cluster.run(0.1)
    cluster.run(4 * ANSWER_S)
    check_over(cluster)
    for node in cluster.nodes.values():
        assert not node.engine.removing, f"{node.name} refuses sets for ever"
    assert cluster.history.hits and cluster.history.sure
