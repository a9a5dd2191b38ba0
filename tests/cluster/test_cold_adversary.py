"""Removals in a store of two clusters, while removers die, clocks differ, and state_dir is old."""

import random
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from harness import other_clock
from harness.cluster import Daemon
from harness.cold import PAGES, STORED, cold_of, fill_and_read, options, wait_known, wipe
from harness.disks import found
from harness.fixtures import MakeCluster
from harness.pages import Pages, keys_of
from harness.s3 import BUCKET, S3
from harness.store_proxy import StoreProxy
from harness.waiting import eventually

from peercache_client import Status

STEP = 8
HOUR_S = 3600
GONE = {Status.ok, Status.absent}


def state_of(daemon: Daemon) -> list[Path]:
    files = daemon.state_dir.glob(f"removals-{daemon.node_id}.*")
    return [file for file in files if file.suffix != ".new"]


class Removers:
    """They die after their record has reached the store, before it, or not at all."""

    def __init__(self, seed: int, folder: Path) -> None:
        self._rng = random.Random(seed)
        self._backups = folder
        self.answered = self.died = 0

    def back_up(self, daemon: Daemon) -> None:
        copy = self._backups / daemon.node_id
        copy.mkdir(parents=True)
        for file in state_of(daemon):
            shutil.copy2(file, copy)

    def remove(self, daemon: Daemon, worker: Pages, keys: list[bytes], has_copy: bool) -> bool:
        """Returns whether the removal was answered."""
        with ThreadPoolExecutor(1) as thread:
            removal = thread.submit(worker.client.remove, keys)
            time.sleep(self._rng.uniform(0.0, 5.0))
            daemon.kill()
            is_gone = set(removal.result()) <= GONE
        if has_copy and self._rng.random() < 0.5:
            for file in state_of(daemon):
                file.unlink()
            for file in (self._backups / daemon.node_id).iterdir():
                shutil.copy2(file, daemon.state_dir)
        daemon.start()
        daemon.wait_ready()
        self.answered += is_gone
        self.died += not is_gone
        return is_gone


@pytest.mark.slow
@pytest.mark.parametrize("ahead_s", [HOUR_S, -HOUR_S])
def test_no_removed_page_comes_back_if_removers_die_and_clocks_differ_by_an_hour(
    make_cluster: MakeCluster,
    s3: S3,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    ahead_s: int,
) -> None:
    store = f"s3://{BUCKET}/prefix"
    rounds = STORED // 2 // STEP  # the pool may have some of the others
    with StoreProxy(s3.endpoint) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.endpoint)
        ours = make_cluster(2, **options(store))
        keys = keys_of("kept", PAGES)
        fill_and_read(ours[0], ours[0].attach(), keys)
        theirs = make_cluster(1, start=False, **options(store))
        theirs[0].launcher = other_clock.launcher(tmp_path / "clock", ahead_s)
        theirs.start()
        for daemon in (ours[1], theirs[0]):
            wait_known(daemon, STORED)
        # The answer to the record comes late, so that a remover may die after its record is there.
        proxy.plan(late_s={"PUT /pages/prefix/voids/": 0.4})
        removers = Removers(7, tmp_path / "backups")
        removers.back_up(ours[0])
        workers = {daemon: daemon.attach(timeout_s=20) for daemon in (*ours.daemons, theirs[0])}
        gone: list[bytes] = []
        for number in reversed(range(rounds)):
            some = keys[number * STEP : (number + 1) * STEP]
            # Nobody has these pages but the store: those behind them come along.
            remover = theirs[0] if number % 3 == 0 else ours[0]
            has_copy = remover is ours[0]
            if not removers.remove(remover, workers[remover], some, has_copy):
                another = workers[ours[1] if remover is ours[0] else remover].client
                eventually(lambda: set(another.remove(some)) <= GONE, 60)  # noqa: B023
            gone += some
            for daemon, worker in workers.items():
                assert worker.client.batch_exists(some) == 0, daemon.node_id
                assert found(worker, gone) == 0, daemon.node_id
        print(f"{removers.answered} answered, {removers.died} not, {cold_of(theirs[0])}")
        assert removers.answered and removers.died
        wipe(ours, theirs)
        new = make_cluster(1, **options(store))
        wait_known(new[0], 1)
        reader = new[0].attach()
        assert found(reader, gone) == 0
