"""Workers and daemons that die while a GPU copies, and a worker that loses its context."""

import random
import threading
import time
from collections.abc import Callable

import pytest
from harness.cluster import Cluster, Daemon
from harness.fixtures import MakeCluster
from harness.layered_pages import layered_pages
from harness.pages import keys_of
from harness.waiting import eventually

from gpu import driver
from gpu.conftest import Connect
from gpu.cuda import GpuMemory
from gpu.worker import PAGES, Worker
from peercache_client import Status

Make = Callable[[int], GpuMemory]
Work = Callable[[Daemon, str], Worker]
ROUNDS = 3


def test_a_worker_that_loses_its_context_harms_no_other(
    nodes: Cluster, connect: Connect, memory: Make, work: Work
) -> None:
    client = connect(nodes[0])
    with layered_pages(client, PAGES, memory) as pages:
        keys = keys_of("other", PAGES)
        assert all(pages.store(client, keys))
        worker = work(nodes[0], "lose")
        assert worker.line() == "stored"
        assert "illegal" in worker.line()
        again = worker.line()
        pages.check(client, keys)
        assert all(pages.store(client, keys_of("later", PAGES)))
        pages.check(client, keys_of("lost", PAGES))
        worker.kill()
        print(f"its next set: {again}")
        pages.check(client, keys)
        [gpu] = nodes[0].status()["gpus"]
        assert not gpu["why_lost"]


def test_a_worker_killed_in_mid_copy_leaves_no_wrong_page(
    make_cluster: MakeCluster, connect: Connect, memory: Make, work: Work
) -> None:
    [daemon] = make_cluster(1, pool_size="256MiB").daemons
    for _ in range(ROUNDS):
        worker = work(daemon, "set")
        assert worker.line() == "0"
        time.sleep(random.random() / 20)
        worker.kill()
        eventually(lambda: daemon.status()["pool"]["reserved"] == 0)
        eventually(lambda: not daemon.status()["workers"])
    client = connect(daemon)
    with layered_pages(client, PAGES, memory) as pages:
        for number in range(50):
            keys = keys_of(str(number), PAGES)
            found = [key for key, there in zip(keys, client.contains(keys), strict=True) if there]
            assert found or number > 0
            if found:
                pages.check(client, found)
        [gpu] = daemon.status()["gpus"]
        assert not gpu["why_lost"]


def test_a_daemon_killed_in_mid_copy_comes_back(
    make_cluster: MakeCluster, connect: Connect, memory: Make
) -> None:
    cluster = make_cluster(1)
    client, keys = connect(cluster[0]), keys_of("daemon", PAGES)
    with layered_pages(client, PAGES, memory) as pages:

        def move() -> None:
            moves = (client.batch_get_device, client.batch_set_device)
            while all(
                status for batch in moves for status in batch(keys, pages.layout, range(PAGES))
            ):
                pass

        for _ in range(ROUNDS):
            eventually(lambda: all(pages.store(client, keys)))
            mover = threading.Thread(target=move)
            mover.start()
            time.sleep(random.random() / 20)
            cluster[0].kill()
            mover.join()
            assert not any(client.batch_get_device(keys, pages.layout, range(PAGES)))
            cluster.start_again(cluster[0])
            eventually(lambda: all(pages.store(client, keys)))
            pages.check(client, keys)


def test_a_daemon_that_loses_its_gpu_keeps_host_memory(
    make_cluster: MakeCluster,
    connect: Connect,
    memory: Make,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if not driver.environment():
        pytest.skip("only the fake driver loses a GPU when a test wants it")
    monkeypatch.setenv("FAKE_CUDA_COPIES", "20")
    [daemon] = make_cluster(1).daemons
    client, bystander = connect(daemon), connect(daemon)
    with (
        layered_pages(client, PAGES, memory) as pages,
        layered_pages(bystander, PAGES, memory) as others,
    ):
        assert others.store(bystander, keys_of("before", 1)) == [Status.ok]  # it is registered
        keys = keys_of("lost", PAGES)
        assert pages.store(client, keys) == [Status.region_lost] * PAGES
        assert others.store(bystander, keys) == [Status.region_lost] * PAGES
        assert client.batch_exists(keys) == 0
        [gpu] = daemon.status()["gpus"]
        assert "illegal" in gpu["why_lost"]
        assert client.set("host", bytes(4096))
    assert client.get("host", 4096) == bytes(4096)
    assert daemon.stop() == 0
