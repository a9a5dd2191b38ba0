"""GPUs that fail or hang, played by a memfd. tests/gpu proves that pages reach them."""

import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness.cluster import Cluster, Daemon
from harness.fixtures import MakeCluster
from harness.gpu_stand_in import GpuStandIn, stand_in_pages
from harness.layered_pages import Shape
from harness.pages import keys_of
from harness.scrape import scrape
from harness.waiting import eventually

from peercache_client import Client, Status
from peercache_client.device import Layout

PAGES = 32


def client_of(daemon: Daemon) -> Client:
    return Client(daemon.socket_path, "gpu", timeout_s=20)


@pytest.fixture
def nodes(make_cluster: MakeCluster) -> Cluster:
    return make_cluster(3, gpu="stand-in")


@pytest.fixture
def worker(nodes: Cluster) -> Iterator["subprocess.Popen[str]"]:
    """Prints a line, then sets pages from a GPU. The copies hang."""
    process = subprocess.Popen(
        [sys.executable, __file__, str(nodes[0].socket_path)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
    )
    yield process
    process.kill()
    process.communicate()


def test_a_worker_killed_in_mid_copy_leaves_nothing(
    nodes: Cluster, worker: "subprocess.Popen[str]"
) -> None:
    assert worker.stdout is not None
    fd_path = worker.stdout.readline().strip()
    eventually(lambda: nodes[0].status()["pool"]["reserved"] > 0)
    held = GpuStandIn(0, path=fd_path)
    worker.send_signal(signal.SIGKILL)
    worker.wait()
    held.fault(held=0)
    eventually(lambda: nodes[0].status()["pool"]["reserved"] == 0)
    eventually(lambda: not nodes[0].status()["workers"])
    with client_of(nodes[1]) as client:
        assert client.batch_exists(keys_of("killed", PAGES)) == 0


def test_a_forked_worker_and_its_child_both_move_pages(nodes: Cluster) -> None:
    keys = keys_of("forked", PAGES)
    with client_of(nodes[0]) as client, stand_in_pages(client, 2 * PAGES) as pages:
        assert all(pages.store(client, keys))
        child = os.fork()
        first = PAGES if child else 0
        right = False
        try:
            got = client.batch_get_device(keys, pages.layout, range(first, first + PAGES))
            right = all(got) and list(map(pages.content, keys)) == [
                pages.page(first + number) for number in range(PAGES)
            ]
        finally:
            if child == 0:
                os._exit(0 if right else 1)
        assert right
        assert os.waitpid(child, 0)[1] == 0


def test_a_gpu_that_is_lost_costs_only_its_own_regions(nodes: Cluster) -> None:
    keys = keys_of("lost", PAGES)
    with (
        client_of(nodes[0]) as client,
        stand_in_pages(client, PAGES, 1) as lost,
        stand_in_pages(client, PAGES, 2) as other,
    ):
        lost.gpu.fault(fail_after=3)
        assert lost.store(client, keys) == [Status.region_lost] * PAGES
        assert client.batch_exists(keys) == 0
        assert all(other.store(client, keys))
        assert client.set("host", bytes(4096))
        [left] = nodes[0].status()["gpus"]
        assert left["id"] == (2).to_bytes(16, "little").hex()
        assert left["copied_bytes"] == PAGES * other.page_bytes
        assert not left["why_lost"]
        assert f'peercached_gpu_lost{{gpu="{left["id"]}"}} 0.0' in scrape(nodes[0])
        lost.regions[0].close()
        with stand_in_pages(client, PAGES, 1) as anew:
            anew.check(client, keys)


@pytest.mark.parametrize("move", ["get", "set"])
def test_memory_is_quarantined_while_a_copy_outlasts_its_call(nodes: Cluster, move: str) -> None:
    """A get would write into it. A set would read what the program has freed meanwhile."""
    keys = keys_of("silent", PAGES)
    with client_of(nodes[0]) as client, stand_in_pages(client, PAGES) as pages:
        assert all(pages.store(client, keys))
        pages.gpu.fault(held=1)
        found: list[Status] = []

        def call() -> None:
            moved = keys if move == "get" else keys_of("held", PAGES)
            batch = client.batch_get_device if move == "get" else client.batch_set_device
            found.extend(batch(moved, pages.layout, range(PAGES), timeout_s=0.2))

        caller = threading.Thread(target=call)
        caller.start()
        caller.join(timeout=20)
        assert not caller.is_alive()
        # The client gave up, and the daemon is still in this memory.
        assert found == [Status.region_lost] * PAGES
        assert pages.regions[0].segment.quarantined
        pages.gpu.fault(held=0)
        eventually(lambda: not pages.regions[0].segment.quarantined)
        eventually(client.ping)
        pages.check(client, keys)
        assert client.batch_exists(keys_of("held", PAGES)) == 0


def test_a_daemon_without_gpu_says_what_is_missing(
    make_cluster: MakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    [daemon] = make_cluster(1).daemons
    with (
        caplog.at_level(logging.WARNING),
        client_of(daemon) as client,
        stand_in_pages(client, PAGES) as pages,
    ):
        assert pages.store(client, keys_of("off", PAGES)) == [Status.bad_region] * PAGES
        assert client.set("host", bytes(4096))
    assert 'set gpu = "cuda"' in caplog.text


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"at": 0}, id="two pieces at one place"),
        pytest.param({"page_stride": 1}, id="two pages at one place"),
        pytest.param({"at": 1 << 40}, id="beyond the memory"),
        pytest.param({"page_stride": 1 << 62}, id="beyond 64 bits"),
    ],
)
def test_a_layout_that_is_wrong_moves_nothing(nodes: Cluster, change: dict[str, Any]) -> None:
    keys = keys_of("wrong", 4)
    with client_of(nodes[0]) as client, stand_in_pages(client, PAGES) as pages:
        rows = list(pages.rows)
        rows[-1] = rows[-1]._replace(**change)
        statuses = client.batch_set_device(keys, Layout(rows), range(1, 5))
        assert statuses == [Status.bad_range] * 4
        assert client.batch_exists(keys) == 0


@pytest.mark.parametrize("place", [0, 1], ids=["from the pool", "from a peer"])
def test_layers_land_one_by_one(nodes: Cluster, place: int) -> None:
    keys = keys_of("stages", PAGES)
    with client_of(nodes[0]) as client, stand_in_pages(client, PAGES) as pages:
        assert all(pages.store(client, keys))
        expected = bytes(pages.gpu.bytes)
    with client_of(nodes[place]) as client, stand_in_pages(client, PAGES) as pages:
        held = 2 * pages.layer_bytes
        pages.gpu.fault(held=1, held_from=held)
        told = []

        def landed(stages: int) -> None:
            told.append(stages)
            if stages == 2:  # the call cannot have ended
                assert pages.gpu.bytes[:held] == expected[:held]
                assert pages.gpu.bytes[held:] == bytes(pages.gpu.size - held)
                pages.gpu.fault(held=0)

        assert all(client.batch_get_device(keys, pages.layout, range(PAGES), landed=landed))
        assert told == [1, 2, 3, 4]
        assert pages.gpu.bytes == expected
        told.clear()
        missing = [*keys[1:], b"nowhere"]
        got = client.batch_get_device(missing, pages.layout, range(PAGES), landed=landed)
        assert got == [Status.ok] * (PAGES - 1) + [Status.absent]
        assert not told


def test_a_call_ends_when_it_cannot_tell_what_has_landed(nodes: Cluster) -> None:
    keys = keys_of("raises", PAGES)
    with client_of(nodes[0]) as client, stand_in_pages(client, PAGES) as pages:
        assert all(pages.store(client, keys))

        def landed(stages: int) -> None:
            raise ValueError(stages)

        with pytest.raises(ValueError, match="1"):
            client.batch_get_device(keys, pages.layout, range(PAGES), landed=landed)
        pages.check(client, keys)


def test_pages_of_unlike_layouts_go_in_one_call(nodes: Cluster) -> None:
    keys = keys_of("layouts", 2 * PAGES)
    with (
        client_of(nodes[0]) as client,
        stand_in_pages(client, PAGES) as one,
        stand_in_pages(client, PAGES, shape=Shape(layers=2, gap=64)) as other,
    ):
        assert all(one.store(client, keys[:PAGES]))
        assert all(other.store(client, keys[PAGES:]))
        numbers = [*range(PAGES)] * 2
        layouts = [one.layout] * PAGES + [other.layout] * PAGES
        for pages in (one, other):
            pages.write([bytearray(pages.gpu.size)])
        assert all(client.batch_get_device(keys, layouts, numbers))
        for pages, some in ((one, keys[:PAGES]), (other, keys[PAGES:])):
            assert [pages.page(number) for number in range(PAGES)] == list(map(pages.content, some))
        anew = [key + b" anew" for key in keys]
        assert all(client.batch_set_device(anew, layouts, numbers))
        for pages, some in ((one, keys[:PAGES]), (other, keys[PAGES:])):
            for key in some[::8]:
                assert client.get(key + b" anew", pages.page_bytes) == pages.content(key)
        twice = client.batch_get_device(keys[:2], [one.layout] * 2, [0, 0])
        assert twice == [Status.ok, Status.bad_range]


def _set_and_hang(socket_path: str) -> None:
    with Client(socket_path, "gpu", timeout_s=60) as client, stand_in_pages(client, PAGES) as pages:
        pages.gpu.fault(held=1)
        print(f"/proc/{os.getpid()}/fd/{pages.gpu.fd}", flush=True)
        pages.store(client, keys_of("killed", PAGES))


if __name__ == "__main__":
    _set_and_hang(sys.argv[1])
