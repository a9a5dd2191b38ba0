"""Workers set, remove, clear and read a few keys on three nodes with disks and pool files, under
all faults of harness.nemeses. The history checks that no get or exists finds a page removed before
it began.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from harness.background import Background
from harness.contested import KEYS, ContestingWorker, note_who_knows_of_clears
from harness.disks import disk_options
from harness.fixtures import MakeCluster
from harness.history import History
from harness.nemeses import Nemeses
from harness.netns import Network, reason_to_skip
from harness.waiting import eventually
from harness.warm_pools import PoolFiles

WORKERS = 6


@pytest.fixture
def network_if_possible() -> Iterator[Network | None]:
    if reason_to_skip():
        yield None
    else:
        network = Network("abc")
        yield network
        network.remove()


@pytest.mark.parametrize(
    ("operations", "pause_s"),
    [(1_500, 0.05), pytest.param(1_000_000, 0.0, marks=pytest.mark.slow)],
)
def test_reads_never_return_pages_removed_before_they_began(
    network_if_possible: Network | None,
    make_cluster: MakeCluster,
    pool_files: PoolFiles,
    tmp_path: Path,
    operations: int,
    pause_s: float,
) -> None:
    network = network_if_possible
    stores = zip(disk_options(tmp_path, "abc"), pool_files.options(3), strict=True)
    spill = {"spill_bytes_per_s": 256 << 20}
    each = [{**disk, **pool, **spill} for disk, pool in stores]
    # Room for half of the keys, so that the others are only on disk.
    cluster = make_cluster(3, start=False, pool_size="1MiB", replica_share=0.5, each=each)
    if network is not None:
        network.place(cluster)
    for daemon in cluster.daemons:
        daemon.heads = [each.address for each in cluster.daemons]
    cluster.start()
    rng, history = random.Random(operations), History()
    befalls = Nemeses(cluster, tmp_path, rng, network)
    befalls.starting_apart = history.starting_apart
    befalls.going_on_unheard = history.going_on_unheard
    nemeses = befalls.all
    with ExitStack() as clients, ExitStack() as threads:
        workers = [ContestingWorker(cluster, history, seed, clients) for seed in range(WORKERS)]
        running = [threads.enter_context(Background(worker.step, pause_s)) for worker in workers]
        rounds = 0
        while history.operations < operations or rounds == 0:
            for nemesis in rng.sample(nemeses, len(nemeses)):
                befalls.befall(nemesis, rng.choice(cluster.daemons))
                note_who_knows_of_clears(cluster, history)
                assert not any(worker.ended for worker in running), "a worker has failed"
            rounds += 1
    counts = f"{history.operations} operations, {history.hits} hits, {history.sure} removals"
    print(f"{counts}, {rounds} rounds of {len(nemeses)} nemeses")
    with ExitStack() as clients:
        worker = ContestingWorker(cluster, history, WORKERS, clients)
        for daemon in cluster.daemons:

            def is_told_all() -> bool:
                removals = daemon.status()["removals"]  # noqa: B023
                return not removals["owes"] and not removals["running"]

            eventually(is_told_all, 60, f"{daemon.node_id} is told all: {daemon.status()}")
            worker.read(daemon.node_id, KEYS)

            def takes_all() -> bool:
                return all(worker.set(daemon.node_id, KEYS))  # noqa: B023

            # At once, unless the machine stood still: then this node must catch up first.
            eventually(takes_all, 60, f"{daemon.node_id} takes sets of all keys")
    assert history.hits and history.sure
