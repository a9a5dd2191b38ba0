"""Workers set, remove, clear and read a few keys on three nodes with disks and pool files. These
meet all of harness.nemeses. Each get and each exists is checked against what had been removed
before it began.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import compress
from pathlib import Path

import pytest
from harness.background import Background
from harness.clock import seconds
from harness.disks import disk_options
from harness.fixtures import MakeCluster
from harness.history import History, Span
from harness.nemeses import Nemeses
from harness.netns import Network, reason_to_skip
from harness.pages import keys_of
from harness.versions import Versions
from harness.waiting import eventually
from harness.warm_pools import PoolFiles

from peercache_client import Status
from peercached.admin.client import AdminClient
from peercached.demo.cluster import Cluster

KEYS = keys_of("contested", 200)
GONE = (Status.ok, Status.absent)
DECIDED = (Status.ok, Status.removing, Status.draining, Status.no_space)
WORKERS = 6
BATCH = 20


class Worker:
    """At a node of its choice each time, with a short deadline."""

    def __init__(self, cluster: Cluster, history: History, seed: int, stack: ExitStack) -> None:
        self._rng = random.Random(seed)
        self._cluster = cluster
        self._history = history
        self._at = {
            daemon.node_id: stack.enter_context(
                Versions(
                    daemon.socket_path,
                    page_bytes=8192,
                    room_pages=len(KEYS),
                    timeout_s=seconds(1.0),
                )
            )
            for daemon in cluster.daemons
        }

    def step(self) -> None:
        node_id = self._rng.choice(list(self._at))
        keys = self._rng.sample(KEYS, self._rng.randint(1, BATCH))
        chance = self._rng.random()
        if chance < 0.002:
            self.clear(node_id)
        elif chance < 0.35:
            self.set(node_id, keys)
        elif chance < 0.5:
            self.remove(node_id, keys)
        elif chance < 0.9:
            self.read(node_id, keys)
        else:
            self.look(node_id, keys)
        if Status.no_daemon in self._at[node_id].statuses:
            time.sleep(0.01)  # somewhere else, then
        else:
            self._history.operations += len(keys)

    def set(self, node_id: str, keys: Sequence[bytes]) -> list[Status]:
        """All keys of a call share a version: if one may still be stored later, all may."""
        version = self._history.begin_set(time.monotonic(), keys)
        statuses = self._at[node_id].set(keys, version)
        if all(status in DECIDED for status in statuses):
            self._history.sets[version].ended = time.monotonic()
        for key, status in zip(keys, statuses, strict=True):
            if status == Status.ok:
                self._history.stored(key, version, node_id)
        return statuses

    def remove(self, node_id: str, keys: Sequence[bytes]) -> None:
        began = time.monotonic()
        statuses = self._at[node_id].remove(keys)
        removal = Span(began, time.monotonic(), where=node_id)
        for key, status in zip(keys, statuses, strict=True):
            if status in GONE:
                self._history.removed(key, removal)
            elif status == Status.removing:
                self._history.removing(key, removal, node_id)

    def clear(self, node_id: str) -> None:
        removal = Span(time.monotonic(), where=f"{node_id}, cleared")
        self._history.clears.append(removal)
        if self._at[node_id].clear():
            removal.ended = time.monotonic()
            for key in KEYS:
                self._history.removed(key, removal)
        else:
            self._history.half_cleared.append(removal)

    def read(self, node_id: str, keys: Sequence[bytes]) -> None:
        began = time.monotonic()
        for key, version in zip(keys, self._at[node_id].get(keys), strict=True):
            if version is not None:
                with self._explained(key):
                    self._history.read(key, version, began, node_id)

    def look(self, node_id: str, keys: Sequence[bytes]) -> None:
        began = time.monotonic()
        there = self._at[node_id].contains(keys)
        asked = Span(began, time.monotonic())
        for key in compress(keys, there):
            with self._explained(key):
                self._history.found(key, asked, node_id)

    @contextmanager
    def _explained(self, key: bytes) -> Iterator[None]:
        try:
            yield
        except AssertionError as error:
            for daemon in self._cluster.daemons:
                try:
                    with AdminClient(str(daemon.admin_path)) as admin:
                        error.add_note(f"{daemon.node_id}: {admin.locate('test', key)}")
                        error.add_note(f"{daemon.node_id}: {admin.trace('test', key)}")
                except Exception as silent:
                    error.add_note(f"{daemon.node_id}: {silent}")
            raise


def note_who_knows_of_clears(cluster: Cluster, history: History) -> None:
    half_cleared, epochs = list(history.half_cleared), set[int]()
    for daemon in cluster.daemons:
        with AdminClient(str(daemon.admin_path)) as admin:
            epochs.add(admin.locate("test", KEYS[0]).epoch)
    if len(epochs) == 1:
        for clear in half_cleared:
            clear.ended = time.monotonic()
            history.half_cleared.remove(clear)


@pytest.fixture
def network_if_possible() -> Iterator[Network | None]:
    if reason_to_skip():
        yield None
    else:
        network = Network("abc")
        yield network
        network.remove()


@pytest.mark.parametrize("operations", [10_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_no_read_gets_what_was_removed_before_it_began(
    network_if_possible: Network | None,
    make_cluster: MakeCluster,
    pool_files: PoolFiles,
    tmp_path: Path,
    operations: int,
) -> None:
    network = network_if_possible
    stores = zip(disk_options(tmp_path, "abc"), pool_files.options(3), strict=True)
    each = [{**disk, **pool} for disk, pool in stores]
    # Room for half of the keys: the others are on the disk alone.
    cluster = make_cluster(3, start=False, pool_size="1MiB", each=each)
    if network is not None:
        network.place(cluster)
    for daemon in cluster.daemons:
        daemon.heads = [each.address for each in cluster.daemons]
    cluster.start()
    rng, history = random.Random(operations), History()
    nemeses = Nemeses(cluster, tmp_path, rng, network).all
    with ExitStack() as clients, ExitStack() as threads:
        workers = [Worker(cluster, history, seed, clients) for seed in range(WORKERS)]
        running = [threads.enter_context(Background(worker.step)) for worker in workers]
        rounds = 0
        while history.operations < operations or rounds == 0:
            for nemesis in rng.sample(nemeses, len(nemeses)):
                nemesis(rng.choice(cluster.daemons))
                cluster.wait_complete()
                note_who_knows_of_clears(cluster, history)
                assert not any(worker.ended for worker in running), "a worker has failed"
            rounds += 1
    counts = f"{history.operations} operations, {history.hits} hits, {history.sure} removals"
    print(f"{counts}, {rounds} rounds of {len(nemeses)} nemeses")
    with ExitStack() as clients:
        worker = Worker(cluster, history, WORKERS, clients)
        for daemon in cluster.daemons:

            def is_told_all() -> bool:
                removals = daemon.status()["removals"]  # noqa: B023
                return removals["vouches"] and not removals["running"]

            eventually(is_told_all, 60, f"{daemon.node_id} is told all: {daemon.status()}")
            worker.read(daemon.node_id, KEYS)
            assert all(worker.set(daemon.node_id, KEYS)), "sets of some key are refused for ever"
    assert history.hits and history.sure
