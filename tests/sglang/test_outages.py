"""A daemon that is missing, dead, hung or restarted never gets in SGLang's way."""

import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pages
import pytest
from controller_node import ControllerNode, Shape
from harness.cluster import Cluster
from harness.fixtures import FAST
from harness.waiting import eventually
from sglang.srt.mem_cache.hicache_storage import PoolHitPolicy, PoolName, PoolTransfer

SHAPE = Shape()


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """One daemon that this test may harm; not started."""
    with Cluster(1, options=FAST) as made:
        yield made


def all_miss(node: ControllerNode, hashes: list[str], indices: Any) -> float:
    """Checks that every call misses and none raises. Returns the slowest call's seconds."""
    backend = node.backend
    side = PoolTransfer(
        name=PoolName.KV, host_indices=indices, keys=hashes, hit_policy=PoolHitPolicy.ALL_PAGES
    )
    bad = [False] * len(hashes)
    slowest = 0.0
    for call, miss in (
        (lambda: backend.batch_exists(hashes), 0),
        (lambda: backend.exists(hashes[0]), False),
        (lambda: backend.batch_exists_v2(hashes, [side]).kv_hit_pages, 0),
        (lambda: backend.batch_get_v1(hashes, indices), bad),
        (lambda: backend.batch_set_v1(hashes, indices), bad),
        (lambda: backend.batch_get_v2([side]), {PoolName.KV: bad}),
        (lambda: backend.batch_set_v2([side]), {PoolName.KV: bad}),
        (backend.clear, None),
        (backend.get_stats, None),
    ):
        began = time.monotonic()
        assert call() == miss
        slowest = max(slowest, time.monotonic() - began)
    return slowest


def test_sglang_starts_without_the_daemon_and_shares_once_it_is_there(cluster: Cluster) -> None:
    with ControllerNode(cluster[0].socket_path, SHAPE) as node:
        hashes = pages.hashes("start", 4)
        source = pages.alloc(node.pool, 4)
        written = pages.fill(node.pool, source, "start")
        all_miss(node, hashes, source)
        cluster.start()
        eventually(lambda: all(node.backend.batch_set_v1(hashes, source)))
        target = pages.alloc(node.pool, 4)
        assert all(node.backend.batch_get_v1(hashes, target))
        assert pages.read(node.pool, target) == written


def test_a_dead_daemon_is_a_miss_within_a_millisecond(cluster: Cluster) -> None:
    cluster.start()
    with ControllerNode(cluster[0].socket_path, SHAPE) as node:
        hashes = pages.hashes("dead", 4)
        source = pages.alloc(node.pool, 4)
        pages.fill(node.pool, source, "dead")
        assert all(node.backend.batch_set_v1(hashes, source))
        cluster[0].kill()
        all_miss(node, hashes, source)
        # The best of 20, because the machine may have other work.
        assert min(all_miss(node, hashes, source) for _ in range(20)) < 0.001

        cluster[0].start()
        eventually(lambda: all(node.backend.batch_set_v1(hashes, source)))


def test_a_daemon_killed_while_threads_use_it_costs_misses_only(cluster: Cluster) -> None:
    cluster.start()
    with ControllerNode(cluster[0].socket_path, SHAPE) as node:
        hashes = pages.hashes("killed", 8)
        source = pages.alloc(node.pool, 8)
        written = pages.fill(node.pool, source, "killed")
        target = pages.alloc(node.pool, 8)
        end = threading.Event()
        failures: list[BaseException] = []
        hits = [0]

        def repeat(action: Any) -> None:
            try:
                while not end.is_set():
                    action()
            except BaseException as failure:
                failures.append(failure)

        def get() -> None:
            ok = node.backend.batch_get_v1(hashes, target)
            got = pages.read(node.pool, target)
            hits[0] += sum(ok)
            assert all(got[i] == written[i] for i in range(8) if ok[i])

        def many_more(before: int) -> bool:
            return hits[0] > before + 20 or bool(failures)

        threads = [
            threading.Thread(target=repeat, args=[action])
            for action in (
                lambda: node.backend.batch_set_v1(hashes, source),
                lambda: node.backend.batch_exists(hashes),
                node.backend.get_stats,
                get,
            )
        ]
        for thread in threads:
            thread.start()
        for _ in range(3):
            eventually(partial(many_more, hits[0]))
            cluster[0].kill()
            cluster[0].start()
        eventually(partial(many_more, hits[0]))
        end.set()
        for thread in threads:
            thread.join()
        assert not failures


def test_a_hung_daemon_holds_the_scheduler_for_an_instant_and_nobody_twice(
    cluster: Cluster,
) -> None:
    cluster.start()
    with ControllerNode(cluster[0].socket_path, SHAPE) as node:
        hashes = pages.hashes("hung", 4)
        source = pages.alloc(node.pool, 4)
        pages.fill(node.pool, source, "hung")
        assert all(node.backend.batch_set_v1(hashes, source))
        cluster[0].freeze()
        began = time.monotonic()
        assert node.backend.batch_exists(hashes) == 0  # on the main thread, as the scheduler
        assert time.monotonic() - began < 1
        assert min(all_miss(node, hashes, source) for _ in range(20)) < 0.001
        cluster[0].thaw()
        eventually(lambda: node.backend.batch_exists(hashes) == 4)


def test_exists_for_128_pages_answers_in_half_a_millisecond(cluster: Cluster) -> None:
    """The goal is 0.5 ms for 128 keys. The best call counts, since the machine has other work."""
    cluster.start()
    with ControllerNode(cluster[0].socket_path, SHAPE.but(tokens=2048)) as node:
        hashes = pages.hashes("asked", 128)
        source = pages.alloc(node.pool, 128)
        assert all(node.backend.batch_set_v1(hashes, source))
        took = []
        for _ in range(200):
            began = time.monotonic()
            assert node.backend.batch_exists(hashes) == 128
            took.append(time.monotonic() - began)
        print(f"128 keys: best {min(took) * 1e3:.3f} ms, median {sorted(took)[100] * 1e3:.3f} ms")
        assert min(took) < 0.0005


def test_a_daemon_that_loses_its_pages_makes_sglang_miss_not_fail(cluster: Cluster) -> None:
    cluster.start()
    with ControllerNode(cluster[0].socket_path, SHAPE) as node:
        tokens = pages.tokens("lost", 64)
        source = pages.alloc(node.pool, 4)
        pages.fill(node.pool, source, "lost")
        assert node.backup(tokens, source).completed_tokens == 64
        cluster[0].kill()
        assert node.prefetch(tokens).completed_tokens == 0
        assert node.backup(tokens, source).completed_tokens == 0
        cluster[0].start()
        eventually(lambda: node.backup(tokens, source).completed_tokens == 64)
        assert node.prefetch(tokens).completed_tokens == 64


def test_missing_socket_gives_only_misses(tmp_path: Path) -> None:
    with ControllerNode(tmp_path / "nothing.sock", SHAPE) as node:
        all_miss(node, pages.hashes("none", 2), pages.alloc(node.pool, 2))


def test_pages_confirmed_to_the_scheduler_survive_pool_overrun(cluster: Cluster) -> None:
    """On a decode node a hit is a promise: its pages outlive all sets that follow."""
    cluster.start()
    shape = Shape(tokens=4096, layers=8, heads=8)
    with ControllerNode(cluster[0].socket_path, shape) as node:
        source = pages.alloc(node.pool, 256)
        page_bytes = node.pool.size_per_token * 16
        overrun = 2 * (64 << 20) // (256 * page_bytes) + 1

        def still_there(name: str, told: bool) -> int:
            hashes = pages.hashes(name, 16)
            written = pages.fill(node.pool, source[:256], name)
            assert all(node.backend.batch_set_v1(hashes, source[:256]))
            if told:
                assert node.backend.batch_exists(hashes) == 16
            for i in range(overrun):
                node.backend.batch_set_v1(pages.hashes(f"{name} over {i}", 256), source)
            target = pages.alloc(node.pool, 16)
            ok = node.backend.batch_get_v1(hashes, target)
            got = pages.read(node.pool, target)
            node.pool.free(target)
            assert all(got[i] == written[i] for i in range(16) if ok[i])
            return sum(ok)

        assert still_there("not told", told=False) == 0
        assert still_there("told", told=True) == 16
