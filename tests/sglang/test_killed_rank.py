"""A rank killed with SIGKILL in the middle of a get: the daemon and the other rank go on."""

import multiprocessing
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pages
import pytest
from controller_node import ControllerNode, Rank, Shape
from harness.cluster import Cluster
from harness.fixtures import FAST
from harness.waiting import eventually

SHAPE = Shape(tokens=1024, layers=4)
OPTIONS: dict[str, Any] = {"model": "killed rank", "timeout_s": 8}


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(2, options={**FAST, "member-ttl-s": 60}) as made:
        made.start()
        yield made


def run_victim(socket_path: Path, pipe: Any) -> None:
    """TP rank 1: two gets that work, to learn where the pages are, then one that waits."""
    import on_cpu

    on_cpu.install()
    node = ControllerNode(socket_path, SHAPE, rank=Rank(1, 2), **OPTIONS)
    near, far = pages.hashes("near", 32), pages.hashes("far", 32)
    target = pages.alloc(node.pool, 32)
    pipe.send(all(all(node.backend.batch_get_v1(each, target)) for each in (near, far)))
    pipe.recv()
    pipe.send("gets")
    node.backend.batch_get_v1(far, target)
    pipe.send("has got")


def test_killed_rank_leaves_daemon_and_other_rank_running_and_is_reclaimed(
    cluster: Cluster,
) -> None:
    """The frozen holder makes sure that the get is under way when the rank is killed."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    with (
        ControllerNode(cluster[0].socket_path, SHAPE, rank=Rank(0, 2), **OPTIONS) as other,
        ControllerNode(cluster[1].socket_path, SHAPE, rank=Rank(1, 2), **OPTIONS) as far_side,
        ControllerNode(cluster[0].socket_path, SHAPE, rank=Rank(1, 2), **OPTIONS) as near_side,
    ):
        source = pages.alloc(other.pool, 32)
        written = pages.fill(other.pool, source, "other")
        hashes = pages.hashes("other", 32)
        assert all(other.backend.batch_set_v1(hashes, source))
        near_room = pages.alloc(near_side.pool, 32)
        for node, name in ((near_side, "near"), (far_side, "far")):
            mine = pages.alloc(node.pool, 32)
            pages.fill(node.pool, mine, name)
            assert all(node.backend.batch_set_v1(pages.hashes(name, 32), mine))

        victim = context.Process(target=run_victim, args=(cluster[0].socket_path, there))
        victim.start()
        try:
            assert here.poll(120), "the rank did not start"
            assert here.recv() is True
            before = cluster[0].status()
            mine = [each for each in before["workers"] if each["pid"] == victim.pid]
            assert len(mine) == 1
            assert mine[0]["regions"] >= 1
            gets = int(before["ipc"]["gets"])
            cluster[1].freeze()
            here.send("go")
            assert here.recv() == "gets"
            # The daemon counts a get when it begins. It cannot end while the holder is frozen.
            eventually(lambda: int(cluster[0].status()["ipc"]["gets"]) > gets)
            os.kill(victim.pid or 0, signal.SIGKILL)
            victim.join(30)
            assert not here.poll(0), "the get had ended"

            target = pages.alloc(other.pool, 32)
            assert all(other.backend.batch_get_v1(hashes, target))
            assert pages.read(other.pool, target) == written
        finally:
            victim.kill()
            cluster[1].thaw()

        def gone() -> bool:
            return all(each["pid"] != victim.pid for each in cluster[0].status()["workers"])

        eventually(gone, 30, what="the dead rank's regions to be given back")
        assert cluster[0].alive
        assert cluster[0].status()["ipc"]["regions_lost"] == before["ipc"]["regions_lost"]
        assert all(near_side.backend.batch_get_v1(pages.hashes("near", 32), near_room))
