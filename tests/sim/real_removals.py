"""The stories of removals.py with the real data plane. Pages that are read come from real pools,
and a killed node recovers its pages from its disk.

    make sim-real-removals ARGS=1000          seeds 0 to 999
    make sim-real-removals ARGS="--seed 77"   that one

The seed does not decide the order of native threads within one moment of virtual time. So a failed
story may pass the next time. For that reason a failure prints the page's history.
"""

from __future__ import annotations

import contextlib
import os
import random
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, cast

from harness.history import History, Span
from harness.raw_worker import Reply
from harness.warm_pools import TMPFS

from peercache_client import Status
from peercached.config import Config
from peercached.directory.ring import Ring
from sim.chaos import members_trouble
from sim.cluster import DRAIN_S, DataPlane, SimCluster, SimNode
from sim.homes import Home
from sim.real_engine import ANSWER_S, RealEngine
from sim.real_time import RealTime
from sim.real_worker import RealWorker
from sim.removals import OVER_S, TTL_S, check_over, replace_ended

# Pages of the first list are removed one by one. The namespace of the second is cleared as a whole.
KEYS = [b"key %d" % number for number in range(12)]
CLEARED_KEYS = [b"cleared %d" % number for number in range(3)]
WORKERS_MAX = 4  # for each node and namespace: limits the calls in flight
POOLS_BYTES = (1 << 20, 1 << 20, 2 << 20)
SETTINGS = {
    "data_port": 0,
    "disk_size": 64 << 20,
    "disk_sync": "never",
    "directory_capacity": 1 << 14,
    "location_cache_entries": 1024,
    "copy_threads": 1,
    "protocol": "tcp",
}
# Probabilities at each start: no disk, the disk restored from a backup, no pool file.
WITHOUT_DISK, FROM_BACKUP = 0.1, 0.15
WITHOUT_POOL_FILE = 0.4
# Disk faults of a start, and the probability of none.
FAULTS = ("disk_no_space=0.5", "disk_write_stall=0.5,disk_stall_ms=20", "disk_write_eio=0.3")
WITHOUT_FAULTS = 0.8
# Probabilities of the operations on a single key.
SETS, REMOVES, EVICTIONS, LOOKS = 0.3, 0.13, 0.1, 0.07
STEPS = 25
TOLD_MAX = 40


class RealRemovals(SimCluster):
    """A SimCluster of real engines with their workers. All their files are in `folder`."""

    def __init__(self, folder: Path, seed: int, nodes: int, **more: Any) -> None:
        super().__init__(seed, nodes, pools=POOLS_BYTES, **more)
        self.history = History()
        self.done: Counter[str] = Counter()
        # During faults an owner may name pages whose withdrawal it has not received yet.
        self.checks_exists = False
        self.real_time = RealTime(self.loop)
        self._folder = folder
        self._can_have_pool_files = folder.is_relative_to(TMPFS)
        self._homes: dict[str, Home] = {}
        self._workers: dict[SimNode, list[RealWorker]] = defaultdict(list)
        self._has_disk = self._has_pool_file = True
        self._faults = ""
        # A generator of its own, so that faults change no other random choices of a seed.
        self._chance_of_faults = random.Random(seed)
        self._setters: dict[int, SimNode] = {}  # by version
        self._clears: list[Span] = []
        self._drained: set[SimNode] = set()
        self._told: list[tuple[float, bytes, str]] = []  # (time, key or b"" for all keys, text)

    def __exit__(self, *what: object) -> None:
        for node in list(self.nodes.values()):
            self._end(node)
        super().__exit__(*what)
        self.real_time.close()

    def _replace(self, stack: ExitStack) -> None:
        super()._replace(stack)
        replace_ended(self, stack)

    # --- nodes

    def settings(self, name: str) -> dict[str, Any]:
        home = self._homes[name]
        stores: dict[str, Any] = {}
        if self._has_disk:
            stores = {"disk_enabled": True, "disk_path": str(home.disk)}
        if self._faults:
            stores["faults"] = self._faults
        if self._has_pool_file:
            stores["pool_file"] = str(home.pool_file)
        socket_path = str(self._folder / f"{name}.sock")
        return {**SETTINGS, **stores, "state_dir": str(home.state), "socket_path": socket_path}

    def data_plane(self, node: SimNode, config: Config, incarnation: int) -> DataPlane:
        engine = RealEngine(node, config, incarnation, self._homes[node.name], self.real_time)
        return DataPlane(cast(Any, engine), Ring().build)

    def start(self, name: str, cold: bool = False) -> SimNode:
        chance = self.rng.random()
        home = self._homes.get(name)
        if home is None:
            home = self._homes[name] = Home(self._folder / name)
            chance = 1.0
        self._has_disk = chance >= WITHOUT_DISK
        self._has_pool_file = self._can_have_pool_files and self.rng.random() >= WITHOUT_POOL_FILE
        if self._can_have_pool_files and self._chance_of_faults.random() >= WITHOUT_FAULTS:
            self._faults = self._chance_of_faults.choice(FAULTS)
        restored = (
            self._has_disk
            and chance < WITHOUT_DISK + FROM_BACKUP
            and home.restore_disk(self.rng.choice)
        )
        node = super().start(name, cold)
        disk = "its disk from a backup" if restored else "its disk" if self._has_disk else "no disk"
        disk += f" ({self._faults})" if self._faults else ""
        self._faults = ""
        pool = "its pool file" if self._has_pool_file else "no pool file"
        self.tell(b"", f"{name} starts as {node.address.incarnation} with {disk} and {pool}")
        found = node.engine.stats()
        self.done["starts"] += 1
        self.done["pages recovered"] += found.get("disk", {}).get("recovered_pages", 0)
        self.done["pages in a pool file"] += found["pool"]["keys"]
        return node

    def crash(self, name: str, machine: bool = False) -> None:
        node = self.nodes[name]
        stopped = engine_of(node).stopped
        super().crash(name, machine)
        self.tell(b"", f"{name} has stopped" if stopped else f"{name} is killed")
        self._end(node)

    def _end(self, node: SimNode) -> None:
        engine_of(node).end()
        for worker in self._workers.pop(node, []):
            worker.close()
        self._drained.discard(node)

    def leave(self, name: str, drain: bool = False) -> None:
        super().leave(name, drain or self.rng.random() < 0.5)

    def back_up(self, rng: random.Random) -> None:
        self.back_up_now(rng.choice(self.names))

    def come_back_from_backup(self, rng: random.Random) -> None:
        """Restores a node's disk and removal state from a backup, while other members know later
        removals."""
        names = [name for name in self.names if self._homes[name].has_backup]
        if not names:
            return
        name = rng.choice(names)
        self.crash(name)
        self.run(2 * TTL_S)
        self.restore(name)
        self.until_agreed(20 * TTL_S)
        self.done["from a backup"] += 1

    def back_up_now(self, name: str) -> None:
        self._homes[name].back_up()

    def restore(self, name: str) -> SimNode:
        self._homes[name].restore(self.rng.choice)
        self.tell(b"", f"{name} comes back from a backup")
        return self.start(name)

    def drain(self, rng: random.Random) -> None:
        """Drains a node that stays up. After a while it accepts sets again."""
        nodes = [node for node in self.readers() if node not in self._drained]
        if nodes:
            node = rng.choice(nodes)
            self._drained.add(node)
            self.tell(b"", f"{node.name} drains, and stays")
            node.process.do(lambda: node.daemon.operations.drain(1 << 30, DRAIN_S, True))
            self.net.after(rng.uniform(0.0, 2 * DRAIN_S), lambda: self._undrain(node))

    def _undrain(self, node: SimNode) -> None:
        async def undrain() -> None:
            await node.daemon.operations.undrain()
            self._drained.discard(node)

        if not node.ending:
            self.tell(b"", f"{node.name} drains no more")
            node.process.do(lambda: self.loop.create_task(undrain()))

    # --- workers

    def somebody_works(self, rng: random.Random) -> None:
        """Starts one random operation. Nodes with a hung daemon count too, because their data
        planes go on."""
        nodes = [n for n in self.nodes.values() if n.process.up and engine_of(n).serves]
        if not nodes:
            return
        node, key, chance = rng.choice(nodes), rng.choice(KEYS + CLEARED_KEYS), rng.random()
        worker = self._worker(node, key)
        if worker is None:
            return
        self.history.operations += 1
        for share, work in (
            (SETS, self.set_page),
            (REMOVES, self.remove_page if key in KEYS else self.clear_pages),
            (EVICTIONS, self.evict_pages),
            (LOOKS, self.look_for_page),
        ):
            if chance < share:
                work(node, worker, key)
                return
            chance -= share
        self.get_page(node, worker, key)

    def _worker(self, node: SimNode, key: bytes) -> RealWorker | None:
        """A free worker of this node and namespace, or None if all are busy."""
        namespace = namespace_of(key)
        workers = [one for one in self._workers[node] if one.namespace == namespace]
        free = next((worker for worker in workers if worker.is_free), None)
        if free is None and len(workers) < WORKERS_MAX:
            socket_path = self._folder / f"{node.name}.sock"
            free = RealWorker(engine_of(node), socket_path, namespace, self.real_time)
            self._workers[node].append(free)
        return free

    def set_page(
        self,
        node: SimNode,
        worker: RealWorker,
        key: bytes,
        answered: Callable[[int | None], object] = lambda status: None,
    ) -> None:
        version = self.history.begin_set(self.net.now, [key])
        self._setters[version] = node
        self.tell(key, f"{node.name} sets {version}")

        def done(reply: Reply | None) -> None:
            # The page is not stored after this moment, even if the answer was an error.
            self.history.sets[version].ended = self.net.now
            status = self._answered("set", node, key, reply)
            if status == Status.ok:
                self.history.stored(key, version, node.name, members_of(node))
            answered(status)

        worker.set(key, version, done)

    def remove_page(self, node: SimNode, worker: RealWorker, key: bytes) -> None:
        began = self.net.now
        self.tell(key, f"{node.name} removes")

        def done(reply: Reply | None) -> None:
            status = self._answered("remove", node, key, reply)
            removal = Span(began, self.net.now, members_of(node))
            if status in (Status.ok, Status.absent):
                self.history.removed(key, removal)
            elif status == Status.removing:
                self.history.removing(key, removal, node.name)

        worker.remove(key, done)

    def clear_pages(self, node: SimNode, worker: RealWorker, key: bytes) -> None:
        began = self.net.now
        for each in CLEARED_KEYS:
            self.tell(each, f"{node.name} clears")

        def done(reply: Reply | None) -> None:
            if self._answered("clear", node, key, reply) == Status.ok:
                self._clears.append(Span(began, self.net.now, members_of(node)))

        worker.clear(done)

    def evict_pages(self, node: SimNode, worker: RealWorker, key: bytes) -> None:
        """Evicts this page and all later ones in KEYS from the pool. The disk may still have
        them."""
        del worker
        for each in KEYS[KEYS.index(key) :] if key in KEYS else [key]:
            if engine_of(node).evict(engine_of(node).digest(namespace_of(each), each))[0]:
                self.done["evicted"] += 1
                self.tell(each, f"{node.name} evicts")

    def look_for_page(self, node: SimNode, worker: RealWorker, key: bytes) -> None:
        began = self.net.now

        def done(reply: Reply | None) -> None:
            there = self._answered("exists", node, key, reply)
            if not there or key not in KEYS or not self.checks_exists:
                return
            with self._explained(key):
                self.history.found(key, Span(began, self.net.now), node.name)

        worker.exists(key, done)

    def get_page(self, node: SimNode, worker: RealWorker, key: bytes) -> None:
        began, unsure = self.net.now, self._unsure()

        def done(reply: Reply | None) -> None:
            if self._answered("get", node, key, reply) != Status.ok:
                return
            version = worker.version()
            self.tell(key, f"{node.name} has got {version}")
            setter = self._setters[version].address.incarnation
            cut_off = setter if setter in unsure | self._unsure() else 0
            with self._explained(key):
                self.history.read(key, version, began, node.name, cut_off)
                if key in CLEARED_KEYS:
                    self._check_clears(node, version, began)

        worker.get(key, done)

    def _check_clears(self, reader: SimNode, version: int, began: float) -> None:
        """After a node has acknowledged a clear, no later read there may find a page set before
        it."""
        was_set = self.history.sets[version].ended
        for clear in self._clears:
            if reader.address.incarnation in clear.members:
                assert not (was_set < clear.began and clear.ended < began), (
                    f"{reader.name} read at {began:.3f} what was set until {was_set:.3f} and "
                    f"cleared from {clear.began:.3f} to {clear.ended:.3f}"
                )

    def _unsure(self) -> set[int]:
        """Incarnations that may have missed removals. Pages set there since carry no promise."""
        return {
            node.address.incarnation for node in self.nodes.values() if node.daemon.removals.owes
        }

    def check_sets(self) -> None:
        """Checks that every node accepts a set of every key."""
        statuses: Counter[int | None] = Counter()
        for key in KEYS:
            for node in self.nodes.values():
                worker = self._worker(node, key)
                assert worker is not None, f"{node.name} does not answer its workers"
                self.set_page(node, worker, key, lambda status: statuses.update([status]))
            self.run(0.5)
        self.run(ANSWER_S)
        assert statuses == {Status.ok: len(self.nodes) * len(KEYS)}, f"statuses of sets: {statuses}"

    # --- history for error messages

    def tell(self, key: bytes, what: str) -> None:
        self._told.append((self.net.now, key, what))

    def _answered(self, call: str, node: SimNode, key: bytes, reply: Reply | None) -> int | None:
        """Logs the answer and returns the page's status. For exists it is the number of pages
        found, for clear the reply's value: nonzero if the clear was incomplete."""
        has_value = call in ("exists", "clear")
        status = None if reply is None else reply.value if has_value else reply.body[0]
        self.done[f"{call} {status}"] += 1
        self.tell(key, f"{node.name} answers {call}: {status}")
        return status

    @contextlib.contextmanager
    def _explained(self, key: bytes) -> Iterator[None]:
        try:
            yield
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.story(key)}") from error

    def story(self, key: bytes) -> str:
        """The latest events that concern this key."""
        told = [one for one in self._told if one[1] in (b"", key)][-TOLD_MAX:]
        return "\n".join(f"{now:9.3f}  {what}" for now, _, what in told)


def namespace_of(key: bytes) -> str:
    return "cleared" if key in CLEARED_KEYS else "removed"


def members_of(node: SimNode) -> frozenset[int]:
    """The incarnations that this node knows."""
    nodes = node.daemon.placement.nodes.values()
    return frozenset(known.address.incarnation for known in nodes)


def engine_of(node: SimNode) -> RealEngine:
    return cast(RealEngine, node.engine)


def removed(seed: int) -> RealRemovals:
    rng = random.Random(seed)
    with (
        tempfile.TemporaryDirectory(
            prefix="sim", dir=TMPFS if os.access(TMPFS, os.W_OK) else None
        ) as folder,
        RealRemovals(
            Path(folder),
            seed,
            rng.randint(2, 5),
            heads=rng.randint(1, 2),
            max_masters=rng.randint(1, 3),
            drop=rng.choice([0.0, 0.02]),
            double=rng.choice([0.0, 0.1]),
            delay_s=rng.choice([0.002, 0.02, 0.2]),
        ) as cluster,
    ):
        _removed(cluster, rng)
    return cluster


def _removed(cluster: RealRemovals, rng: random.Random) -> None:
    def step() -> None:
        for _ in range(rng.randint(2, 12)):
            # Several operations at one moment, so that their native threads run concurrently.
            for _ in range(rng.randint(1, 4)):
                cluster.somebody_works(rng)
            cluster.run(rng.expovariate(10.0))
        if rng.random() < 0.2:
            cluster.back_up(rng)
        if rng.random() < 0.1:
            cluster.drain(rng)
        cluster.run(rng.choice([0.0, 0.0, 0.5 * TTL_S, 2 * TTL_S]))

    # Start only once all parts have met: before that they know nothing of each other's removals.
    cluster.until_agreed(20 * TTL_S)
    members_trouble(cluster, rng, STEPS, step)
    for name in cluster.names:
        if name not in cluster.nodes:
            cluster.start(name)
    cluster.until_agreed(20 * TTL_S)
    cluster.run(2 * TTL_S)
    cluster.come_back_from_backup(rng)
    cluster.run(2 * TTL_S)
    cluster.checks_exists = True
    until = cluster.net.now + OVER_S
    while cluster.net.now < until:
        cluster.somebody_works(rng)
        cluster.run(0.2)
    cluster.run(4 * ANSWER_S)
    check_over(cluster)
    cluster.check_sets()
    assert cluster.history.hits and cluster.history.sure


def main(arguments: list[str]) -> None:
    seeds = [int(arguments[1])] if arguments[0] == "--seed" else range(int(arguments[0]))
    done: Counter[str] = Counter()
    failed, began = 0, time.monotonic()
    for seed in seeds:
        try:
            cluster = removed(seed)
        except Exception as error:
            failed += 1
            print(f"--seed {seed}: {type(error).__name__}: {error}", flush=True)
            continue
        history = cluster.history
        done += cluster.done
        done.update(operations=history.operations, hits=history.hits, sure=history.sure)
    print(f"{len(seeds)} stories, {failed} failed, {time.monotonic() - began:.0f} s: {dict(done)}")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main(sys.argv[1:])
