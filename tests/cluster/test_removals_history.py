"""Workers set, remove, clear and read a few keys on three nodes with disks while these are killed,
stopped, frozen, drained and started, alone and all at once. Each get and each exists is checked
against what had been removed before it began.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from itertools import compress
from pathlib import Path

import pytest
from harness.background import Background
from harness.clock import seconds
from harness.disks import disk_options
from harness.fixtures import MakeCluster
from harness.history import History, Span
from harness.pages import keys_of
from harness.versions import Versions
from harness.waiting import eventually

from peercache_client import Status
from peercached.admin.client import AdminClient
from peercached.demo.cluster import Cluster, Daemon

KEYS = keys_of("contested", 200)
GONE = (Status.ok, Status.absent)
DECIDED = (Status.ok, Status.removing, Status.draining, Status.no_space)
WORKERS = 6
BATCH = 20


class Worker:
    """At a node of its choice each time, with a short deadline."""

    def __init__(self, cluster: Cluster, history: History, seed: int, stack: ExitStack) -> None:
        self._rng = random.Random(seed)
        self._history = history
        self._at = {
            daemon.node_id: stack.enter_context(
                Versions(daemon.socket_path, room_pages=len(KEYS), timeout_s=seconds(1.0))
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
        removal = Span(began, time.monotonic())
        for key, status in zip(keys, statuses, strict=True):
            if status in GONE:
                self._history.removed(key, removal)
            elif status == Status.removing:
                self._history.removing(key, removal, node_id)

    def clear(self, node_id: str) -> None:
        began = time.monotonic()
        if self._at[node_id].clear():
            removal = Span(began, time.monotonic())
            for key in KEYS:
                self._history.removed(key, removal)

    def read(self, node_id: str, keys: Sequence[bytes]) -> None:
        began = time.monotonic()
        for key, version in zip(keys, self._at[node_id].get(keys), strict=True):
            if version is not None:
                self._history.read(key, version, began, node_id)

    def look(self, node_id: str, keys: Sequence[bytes]) -> None:
        began = time.monotonic()
        there = self._at[node_id].contains(keys)
        asked = Span(began, time.monotonic())
        for key in compress(keys, there):
            self._history.found(key, asked, node_id)


def kill(cluster: Cluster, daemon: Daemon) -> None:
    daemon.kill()
    daemon.start()


def stop(cluster: Cluster, daemon: Daemon) -> None:
    assert daemon.stop(30) == 0
    daemon.start()


def freeze(cluster: Cluster, daemon: Daemon) -> None:
    daemon.freeze()
    others = [other for other in cluster.daemons if other is not daemon]
    for other in others:
        other.wait_members([member.node_id for member in others])
    daemon.thaw()


def freeze_and_kill_another(cluster: Cluster, daemon: Daemon) -> None:
    other = next(other for other in cluster.daemons if other is not daemon)
    daemon.freeze()
    other.kill()
    other.start()
    daemon.thaw()


def drain_and_stay(cluster: Cluster, daemon: Daemon) -> None:
    with AdminClient(str(daemon.admin_path)) as admin:
        admin.drain(1 << 40, 60.0, True)
        eventually(lambda: daemon.status()["drain"]["state"] == "drained", 30)
        admin.undrain()


def leave(cluster: Cluster, daemon: Daemon) -> None:
    with AdminClient(str(daemon.admin_path)) as admin:
        admin.drain(1 << 40, 60.0, False)
    eventually(lambda: daemon.status()["drain"]["state"] == "left", 30)
    stop(cluster, daemon)


def start_once_without_its_disk(cluster: Cluster, daemon: Daemon) -> None:
    daemon.kill()
    options = daemon.options
    daemon.options = {k: v for k, v in options.items() if not k.startswith("disk-")}
    daemon.start()
    cluster.wait_complete()
    assert daemon.stop(30) == 0
    daemon.options = options
    daemon.start()


def kill_all(cluster: Cluster, daemon: Daemon) -> None:
    """One of them earlier than the others, which comes back as the last."""
    daemon.kill()
    others = [other for other in cluster.daemons if other is not daemon]
    for other in others:
        other.wait_members([member.node_id for member in others])
    for other in others:
        other.kill()
    for other in [*others, daemon]:
        other.start()


NEMESES: list[Callable[[Cluster, Daemon], None]] = [
    kill, stop, freeze, freeze_and_kill_another, drain_and_stay, leave, start_once_without_its_disk,
    kill_all,
]  # fmt: skip


@pytest.mark.parametrize("operations", [10_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_no_read_gets_what_was_removed_before_it_began(
    make_cluster: MakeCluster, tmp_path: Path, operations: int
) -> None:
    cluster = make_cluster(3, start=False, each=disk_options(tmp_path, "abc"))
    for daemon in cluster.daemons:
        daemon.heads = [each.address for each in cluster.daemons]
    cluster.start()
    rng, history = random.Random(operations), History()
    with ExitStack() as clients, ExitStack() as threads:
        workers = [Worker(cluster, history, seed, clients) for seed in range(WORKERS)]
        running = [threads.enter_context(Background(worker.step)) for worker in workers]
        rounds = 0
        while history.operations < operations or rounds == 0:
            for nemesis in rng.sample(NEMESES, len(NEMESES)):
                nemesis(cluster, rng.choice(cluster.daemons))
                cluster.wait_complete()
                assert not any(worker.ended for worker in running), "a worker has failed"
            rounds += 1
    counts = f"{history.operations} operations, {history.hits} hits, {history.sure} removals"
    print(f"{counts}, {rounds} rounds of {len(NEMESES)} nemeses")
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
