"""The claim of test_removals.py with the real data plane: reads return pages from real pools, disks
and journals. Runs of one seed differ a little (real_removals.py)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from peercached.peer.removals.catch_up import RemovalCatchUp
from peercached.peer.removals.replies import Answers
from peercached.peer.server.cluster_wide import ClusterWide
from sim import real_removals
from sim.cluster import SimNode
from sim.real_removals import KEYS, RealRemovals
from sim.real_worker import RealWorker
from sim.seeds import slow

SEEDS = [  # 10 to 40 s each
    10,  # two parts clear independently
    23,  # a removal waits for a process that its driver has never met; its node is back
    42,  # a node is stopped during its clear
    279,  # a node is cut off when it starts
]
QUICK_SEED = 258  # a member is killed right after it has learned another's journal position


@pytest.mark.parametrize("seed", [QUICK_SEED, *slow(sorted({*range(100), *SEEDS}))])
def test_no_read_finds_a_page_removed_before_it_began(seed: int) -> None:
    real_removals.removed(seed)


def test_drain_hands_over_no_page_removed_during_a_partition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node drains before it hears of the removal. The nodes that take its pages serve
    them as their own."""
    key = KEYS[0]
    with RealRemovals(tmp_path, 1, 3, heads=2, max_masters=3, delay_s=0.02) as cluster:
        cluster.until_agreed(100)
        cluster.run(10)
        cluster.leave("n0001")
        cluster.run(15)
        cluster.cut(["n0001"], ["n0000", "n0002"])
        cut_off = cluster.start("n0001")
        cluster.run(30)
        cluster.set_page(cut_off, worker(cluster, cut_off, key), key)
        cluster.run(1)
        remover = cluster.nodes["n0000"]
        cluster.remove_page(remover, worker(cluster, remover, key), key)
        cluster.run(3)
        assert cluster.history.sure == 1

        async def unanswered() -> dict[str, Any]:
            return {}

        monkeypatch.setattr(cut_off.daemon.removal_catch_up, "_ask_all", unanswered)
        cluster.net.cuts.clear()
        while not len(cut_off.view.members) == len(remover.view.members) == 3:
            cluster.run(0.02)
        assert cut_off.daemon.removals.owes
        cluster.leave("n0001", drain=True)
        cluster.run(15)
        for name in ("n0000", "n0002"):
            reader = cluster.nodes[name]
            cluster.get_page(reader, worker(cluster, reader, key), key)
        cluster.run(3)


@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_a_removal_reaches_a_node_that_has_missed_a_clear(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """After a clear, keys have other digests. So the node must learn of the clear together with the
    removal."""
    key, call = KEYS[0], ClusterWide._raise_at

    async def lost(self: Any, node: Any, request: Any) -> None:
        return None

    monkeypatch.setattr(real_removals, "namespace_of", lambda _: "one")
    with RealRemovals(tmp_path, seed, 2, delay_s=0.02) as cluster:
        cluster.until_agreed(100)
        cluster.run(10)
        here, there = cluster.nodes["n0000"], cluster.nodes["n0001"]
        for remover, holder in ((here, there), (there, here)):
            cluster.set_page(holder, worker(cluster, holder, key), key)
            cluster.run(1)
            monkeypatch.setattr(ClusterWide, "_raise_at", lost)
            cluster.clear_pages(here, worker(cluster, here, key), key)
            cluster.run(0.05)
            monkeypatch.setattr(ClusterWide, "_raise_at", call)
            cluster.remove_page(remover, worker(cluster, remover, key), key)
            cluster.run(0.2)
            cluster.get_page(holder, worker(cluster, holder, key), key)
            cluster.run(3)
        assert cluster.history.sure >= 2


def cut_off_and_forgotten(cluster: RealRemovals, others: Sequence[SimNode]) -> None:
    cluster.cut(["n0002"], [node.name for node in others])
    while any("n0002" in node.view.by_id for node in others):
        cluster.run(0.1)
    for node in others:
        node.process.do(partial(node.daemon.removals.forget, "n0002"))


def worker(cluster: RealRemovals, node: SimNode, key: bytes) -> RealWorker:
    free = cluster._worker(node, key)
    assert free is not None
    return free


def test_old_state_that_owed_nobody_alone_is_found_out_when_parts_meet(tmp_path: Path) -> None:
    """Its disk and its state_dir come from a backup made when it was the last node running."""
    key = KEYS[0]
    with RealRemovals(tmp_path, 1, 2, heads=2, max_masters=2, delay_s=0.02) as cluster:
        cluster.until_agreed(100)
        cluster.run(10)
        cluster.leave("n0001")
        cluster.run(15)
        last = cluster.nodes["n0000"]
        cluster.set_page(last, worker(cluster, last, key), key)
        cluster.run(5)
        cluster.back_up_now("n0000")
        remover = cluster.start("n0001")
        cluster.until_agreed(100)
        cluster.run(15)
        cluster.remove_page(remover, worker(cluster, remover, key), key)
        cluster.run(5)
        assert cluster.history.sure == 1
        cluster.crash("n0000")
        cluster.cut(["n0000"], ["n0001"])
        old = cluster.restore("n0000")
        cluster.run(60)
        assert not old.daemon.removals.owes, "it thinks that it was the last"
        cluster.net.cuts.clear()
        cluster.until_agreed(200)
        cluster.run(10)
        for node in (old, remover):
            cluster.get_page(node, worker(cluster, node, key), key)
        cluster.run(3)


@pytest.mark.parametrize("apart_s", [0.5, 2.0])
def test_a_node_that_was_forgotten_by_mistake_drops_what_was_removed_meanwhile(
    tmp_path: Path, apart_s: float
) -> None:
    """It was only cut off. `apart_s`: after the removal. It decides who asks the other first once
    they meet again."""
    key = KEYS[0]
    with RealRemovals(tmp_path, 1, 3, heads=2, max_masters=3, delay_s=0.02) as cluster:
        cluster.until_agreed(100)
        cluster.run(15)
        cut_off, remover, third = (cluster.nodes[name] for name in ("n0002", "n0000", "n0001"))
        cluster.set_page(cut_off, worker(cluster, cut_off, key), key)
        cluster.run(1)
        cut_off_and_forgotten(cluster, (remover, third))
        cluster.remove_page(remover, worker(cluster, remover, key), key)
        cluster.run(apart_s)
        assert cluster.history.sure == 1
        cluster.net.cuts.clear()
        cluster.until_agreed(200)
        for node in (cut_off, remover, third):
            cluster.get_page(node, worker(cluster, node, key), key)
        cluster.run(15)
        assert not any(node.daemon.removals.owes for node in (cut_off, remover, third))
        assert not any(node.daemon.removals.processes.owing() for node in (cut_off, remover, third))
        for node in (cut_off, remover, third):
            cluster.get_page(node, worker(cluster, node, key), key)
        cluster.run(3)


def clear_and_remove_apart(cluster: RealRemovals, key: bytes) -> tuple[SimNode, SimNode, SimNode]:
    """Cuts off n0002, which clears the namespace and sets the page. Another node removes it, so the
    rest of the cluster knows of no clear. Returns the one cut off, the remover and the third."""
    cluster.until_agreed(100)
    cluster.run(15)
    cut_off, remover, third = (cluster.nodes[name] for name in ("n0002", "n0000", "n0001"))
    cut_off_and_forgotten(cluster, (remover, third))
    cluster.clear_pages(cut_off, worker(cluster, cut_off, key), key)
    cluster.run(5)
    cluster.set_page(cut_off, worker(cluster, cut_off, key), key)
    cluster.run(5)
    cluster.remove_page(remover, worker(cluster, remover, key), key)
    cluster.run(1)
    assert cluster.history.sure == 1
    return cut_off, remover, third


@pytest.mark.parametrize("restarts", [False, True])
def test_a_clear_of_a_node_that_was_away_hides_no_page_from_removals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, restarts: bool
) -> None:
    """It is back in the view before it has compared. `restarts`: it is killed in this time."""
    key, ask, is_silent = KEYS[0], RemovalCatchUp._ask, True

    async def maybe_lost(self: Any, node: Any, heard: int | None = None) -> Any:
        is_lost = is_silent and self._placement.own.address.node_id == "n0002"
        return None if is_lost else await ask(self, node, heard)

    monkeypatch.setattr(real_removals, "namespace_of", lambda _: "one")
    monkeypatch.setattr(RemovalCatchUp, "_ask", maybe_lost)
    with RealRemovals(tmp_path, 1, 3, heads=2, max_masters=3, delay_s=0.02) as cluster:
        is_silent = False
        cut_off, remover, third = clear_and_remove_apart(cluster, key)
        is_silent = True
        cluster.net.cuts.clear()
        cluster.until_agreed(200)
        cluster.run(2)
        if restarts:
            cluster.crash("n0002")
            cut_off = cluster.start("n0002")
        is_silent = False
        cluster.until_agreed(200)
        cluster.run(15)
        for node in (cut_off, remover, third):
            cluster.get_page(node, worker(cluster, node, key), key)
        cluster.run(3)


def test_a_node_that_is_held_back_remembers_that_only_it_knew_of_a_clear(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It asks, holds its pages back, and is heard: the others take its clear. Then it asks anew."""
    key, enough, is_held = KEYS[0], Answers.enough, False

    def maybe_enough(self: Any) -> Any:
        return None if is_held and self._own_id == "n0002" else enough(self)

    monkeypatch.setattr(real_removals, "namespace_of", lambda _: "one")
    monkeypatch.setattr(Answers, "enough", maybe_enough)
    with RealRemovals(tmp_path, 1, 3, heads=2, max_masters=3, delay_s=0.02) as cluster:
        cut_off, remover, third = clear_and_remove_apart(cluster, key)
        is_held = True
        cluster.crash("n0002")
        cluster.net.cuts.clear()
        cut_off = cluster.start("n0002")
        cluster.until_agreed(200)
        cluster.run(30)
        assert cut_off.daemon.removals.hides_older, "its page is on its disk"
        is_held = False
        cluster.run(15)
        assert not cut_off.daemon.removals.owes
        for node in (cut_off, remover, third):
            cluster.get_page(node, worker(cluster, node, key), key)
        cluster.run(3)
