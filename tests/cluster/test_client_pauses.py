"""A daemon is stopped and resumed again and again during gets. Memory that the engine reuses after
a get stays unchanged, and hits return soon after the daemon."""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path

import pytest
from harness.background import Background
from harness.clock import now_s, seconds
from harness.cluster import Daemon
from harness.fixtures import MakeCluster
from harness.pages import Pages, keys_of
from harness.waiting import eventually

from peercache_client import Client

PAGES = 32
PAGE_BYTES = 65_536
TIMEOUT_S = 0.5
# Median time from the resume until all hits are back. The maximum may be larger.
BACK_WITHIN_S = 1.0


class Engine:
    """Gets the same pages over and over. As in SGLang, it reuses its memory right after every get,
    even a failed one."""

    def __init__(self, socket_path: Path, keys: list[bytes], seed: int) -> None:
        self._client = Client(
            str(socket_path), "test", timeout_s=seconds(TIMEOUT_S), silence_timeout_s=None
        )
        self._pages = Pages(socket_path, room_pages=PAGES)  # it verifies the bytes
        self._pages.client = self._client  # type: ignore[assignment]
        self._pages.region = self._client.alloc(PAGES * PAGE_BYTES)
        self._keys = keys
        self._dice = random.Random(seed)
        self.all_hit_at = 0.0  # start of the latest get that hit all pages
        self.interrupted = 0

    def step(self) -> None:
        began = now_s()
        if self._pages.has(self._keys):
            self.all_hit_at = began
            return
        self.interrupted += 1
        self._pages.paint(0x3C)
        time.sleep(seconds(self._dice.uniform(0.0, 0.02)))  # uses the memory meanwhile
        assert self._pages.painted(0x3C), "it was written once the get had ended"


@pytest.mark.parametrize(
    ("pauses", "longest_s"),
    [(5, 2.0), pytest.param(100, 20.0, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])],
)
def test_pauses_cost_no_hits_afterwards_and_no_late_write(
    make_cluster: MakeCluster, pauses: int, longest_s: float
) -> None:
    daemon = make_cluster(1).daemons[0]
    keys = keys_of("paused", PAGES)
    with Pages(daemon.socket_path, room_pages=PAGES) as writer:
        assert all(writer.set(keys))
    engines = [Engine(daemon.socket_path, keys, seed) for seed in range(3)]
    dice, back_after_s = random.Random(pauses), []
    with Background(engines[0].step), Background(engines[1].step), Background(engines[2].step):
        eventually(lambda: all(engine.all_hit_at for engine in engines))
        for _ in range(pauses):
            back_after_s.append(pause(daemon, engines, dice.uniform(1.0, longest_s)))
    missed = sum(engine.interrupted for engine in engines)
    print(f"{pauses} pauses, {missed} gets without all pages; hits were back after ", end="")
    print(f"{sorted(back_after_s)[pauses // 2]:.3f} s, {max(back_after_s):.3f} s at most")
    assert sorted(back_after_s)[pauses // 2] < seconds(BACK_WITHIN_S)


def pause(daemon: Daemon, engines: list[Engine], length_s: float) -> float:
    """Freezes the daemon. Returns the time from the thaw until all engines hit all pages again."""
    daemon.freeze()
    threading.Event().wait(seconds(length_s))
    daemon.thaw()
    thawed = now_s()
    eventually(lambda: all(engine.all_hit_at > thawed for engine in engines))
    return max(engine.all_hit_at for engine in engines) - thawed
