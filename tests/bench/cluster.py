"""The cost of lookups, gets and sets as the cluster grows: real daemons on this machine.

    make bench-cluster ARGS="[NODES...]"        default: 2 4 8 16

A worker at the first node sets pages; one at the second asks for keys that it has never asked for,
so that no location cache can answer. The figures are medians in ping-pongs: of 64 bytes over TCP
between two processes, measured in the same run: only such multiples travel between machines.
Where redis-server is installed it does the same work, as a central directory and store would. The
figures are kept in docs/scaling.json and drawn in docs/cluster.svg.
"""

# /// script
# dependencies = ["matplotlib>=3.8", "redis>=5"]
# ///

from __future__ import annotations

import contextlib
import multiprocessing
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.cluster import Cluster
from harness.directory import wait_settled
from harness.netns import Network
from harness.waiting import eventually

from bench.figures import DOCS, keep, lines, load, pyplot
from peercache_bench.process import free_port
from peercache_client import Client, Region

PLOT = DOCS / "cluster.svg"
KEYS, SMALL_BYTES = 128, 1024
PAGES, PAGE_BYTES = 32, 128 << 10
ROUNDS = 60
LOOKUPS = 240
IDLE_S = 10.0
SETTING_POOL = "512MiB"  # of the node that sets: it evicts nothing
START_S = 240.0
ONE_ADDRESS_MAX = 32
AT_ONCE = 8


def _echo(listener: socket.socket, processor: int) -> None:
    os.sched_setaffinity(0, {processor})
    connection, _ = listener.accept()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while data := connection.recv(64):
        connection.sendall(data)


def ping_pong_us(count: int = 3000) -> float:
    """The median between two processors: what one message to another daemon costs at least here."""
    allowed = os.sched_getaffinity(0)
    listener = socket.create_server(("127.0.0.1", 0))
    fork = multiprocessing.get_context("fork")
    other = fork.Process(target=_echo, args=(listener, max(allowed)), daemon=True)
    other.start()
    os.sched_setaffinity(0, {min(allowed)})
    try:
        with socket.create_connection(listener.getsockname()) as stream:
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

            def once() -> None:
                stream.sendall(b"x" * 64)
                stream.recv(64)

            return median_us(once, count)
    finally:
        os.sched_setaffinity(0, allowed)
        other.join()


def median_us(action: Callable[[], object], count: int) -> float:
    took = []
    for _ in range(count):
        began = time.perf_counter()
        action()
        took.append(time.perf_counter() - began)
    return statistics.median(took) * 1e6


@dataclass(frozen=True)
class Usage:
    """Processor time of all threads of some processes. To read it takes a second on 64 nodes."""

    at_s: float  # when the reading began
    busy_s: float

    @staticmethod
    def of(pids: list[int]) -> Usage:
        at_s = time.perf_counter()
        total_ns = 0
        for pid in pids:
            for task in Path(f"/proc/{pid}/task").iterdir():
                with contextlib.suppress(FileNotFoundError):
                    total_ns += int((task / "schedstat").read_text().split()[0])
        return Usage(at_s, total_ns / 1e9)

    def since(self, before: Usage) -> Usage:
        """Both readings take equally long, so they see each thread about as far apart as they
        began."""
        return Usage(self.at_s - before.at_s, self.busy_s - before.busy_s)


class Workers:
    """Of the first two nodes. Every call asks for keys of its own, and must succeed."""

    def __init__(self, cluster: Cluster) -> None:
        self.setting = Client(str(cluster[0].socket_path), "bench", timeout_s=10)
        self.asking = Client(str(cluster[1].socket_path), "bench", timeout_s=10)
        self.from_here = self.setting.alloc(PAGES * PAGE_BYTES)
        self.to_there = self.asking.alloc(PAGES * PAGE_BYTES)
        self._numbers = iter(range(1 << 30))

    def set(self, count: int, page_bytes: int) -> list[str]:
        keys = [f"{next(self._numbers)}" for _ in range(count)]
        assert all(self.setting.batch_set(keys, *slices(self.from_here, count, page_bytes)))
        return keys

    def exists(self, keys: list[str]) -> None:
        assert self.asking.batch_exists(keys) == len(keys)

    def get(self, keys: list[str], page_bytes: int) -> None:
        assert all(self.asking.batch_get(keys, *slices(self.to_there, len(keys), page_bytes)))


def slices(region: Region, count: int, page_bytes: int) -> tuple[Region, list[int], list[int]]:
    return region, [page_bytes * place for place in range(count)], [page_bytes] * count


@contextlib.contextmanager
def started(nodes: int) -> Iterator[Cluster]:
    """On one address. Large clusters are on a host of their own each, because a daemon limits the
    connections of one address, and start a few at a time, with a patient failure detector."""
    options = {"pool-size": "192MiB"}
    each = [{"pool-size": SETTING_POOL}]
    large = nodes > ONE_ADDRESS_MAX
    if large:
        options |= {"heartbeat-interval-s": "10", "member-ttl-s": "60"}
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(
            Cluster(nodes, options=options, each=each, patience=START_S / 20)
        )
        at_once = nodes
        if large:
            at_once = AT_ONCE
            network = Network([daemon.node_id for daemon in cluster.daemons])
            stack.callback(network.remove)
            network.place(cluster)
        for first in range(0, nodes, at_once):
            for daemon in cluster.daemons[first : first + at_once]:
                daemon.start()
            cluster.wait_complete(START_S)
        wait_settled(cluster.daemons, START_S)
        yield cluster


def measure(nodes: int) -> dict[str, float]:
    with started(nodes) as cluster:
        pids = [daemon.pid for daemon in cluster.daemons]
        workers = Workers(cluster)
        known = [workers.set(KEYS, SMALL_BYTES) for _ in range(LOOKUPS)]
        before = Usage.of(pids)
        time.sleep(IDLE_S)
        rest = Usage.of(pids).since(before)
        idle = rest.busy_s / rest.at_s

        before = Usage.of(pids)
        keys = iter(known)
        exists_us = median_us(lambda: workers.exists(next(keys)), LOOKUPS)
        busy = Usage.of(pids).since(before)
        exists_cpu_us = (busy.busy_s - idle * busy.at_s) / LOOKUPS * 1e6

        single = iter([workers.set(1, PAGE_BYTES) for _ in range(3 * ROUNDS)])
        get_us = median_us(lambda: workers.get(next(single), PAGE_BYTES), 3 * ROUNDS)
        set_us = median_us(lambda: workers.set(1, PAGE_BYTES), 3 * ROUNDS)
        set_many_us = median_us(lambda: workers.set(PAGES, PAGE_BYTES), ROUNDS)
    return {
        "nodes": nodes,
        **in_ping_pongs(exists=exists_us, get=get_us, set=set_us, set_many=set_many_us),
        "exists_cpu_us": max(exists_cpu_us, 0.0),
        "idle_share": idle / nodes,
    }


def in_ping_pongs(**took_us: float) -> dict[str, float]:
    one_us = ping_pong_us()
    return {"ping_pong_us": one_us} | {name: us / one_us for name, us in took_us.items()}


@contextlib.contextmanager
def redis() -> Iterator[Any]:
    from redis import Redis, RedisError

    port = free_port("127.0.0.1")
    with tempfile.TemporaryDirectory() as folder:
        command = ["redis-server", "--port", str(port), "--save", "", "--dir", folder]
        server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        client = Redis(port=port, socket_read_size=1 << 20)
        try:

            def answers() -> bool:
                with contextlib.suppress(RedisError):
                    return bool(client.ping())
                return False

            eventually(answers, 20, "redis answers")
            yield client
        finally:
            client.close()
            server.kill()
            server.wait()


def measure_redis() -> dict[str, float]:
    page = bytes(PAGE_BYTES)
    with redis() as client:
        names = iter(range(1 << 30))
        known = [[f"{next(names)}" for _ in range(KEYS)] for _ in range(ROUNDS)]
        for keys in known:
            client.mset(dict.fromkeys(keys, page[:SMALL_BYTES]))
        batches = iter(known)
        exists_us = median_us(lambda: client.exists(*next(batches)), ROUNDS)
        set_us = median_us(lambda: client.set(f"{next(names)}", page), 3 * ROUNDS)
        single = f"{next(names)}"
        client.set(single, page)
        get_us = median_us(lambda: client.get(single), 3 * ROUNDS)

        def set_many() -> None:
            pipeline = client.pipeline(transaction=False)
            for _ in range(PAGES):
                pipeline.set(f"{next(names)}", page)
            pipeline.execute()

        set_many_us = median_us(set_many, ROUNDS)
    times = in_ping_pongs(exists=exists_us, get=get_us, set=set_us, set_many=set_many_us)
    return {"nodes": 1, **times}


def plot() -> None:
    plt = pyplot()

    figures = load()
    central = figures.get("redis", {}).get("1", {})
    made, (times, many, processor) = plt.subplots(1, 3, figsize=(14, 3.6))
    lines(
        times, figures["cluster"], "median, ping-pongs",
        exists="exists of 128 keys", get="get of 128 KiB", set="set of 128 KiB",
    )  # fmt: skip
    lines(many, figures["cluster"], "median, ping-pongs", set_many="set of 32 x 128 KiB")
    lines(
        processor, figures["cluster"], "processor time of all daemons, us",
        exists_cpu_us="exists of 128 keys",
    )  # fmt: skip
    for axes, names in ((times, ("exists", "get", "set")), (many, ("set_many",))):
        for number, name in enumerate(names):
            if name in central:
                axes.axhline(
                    central[name], color=f"C{number}", linestyle=":", label=f"redis, {name}"
                )
        axes.legend(fontsize=8)
    for axes in (times, many, processor):
        axes.set_ylim(bottom=0)
    made.tight_layout()
    made.savefig(PLOT, metadata={"Date": None})


COLUMNS = ("exists", "get", "set", "set_many")


def line(name: str, found: dict[str, float]) -> str:
    times = "".join(f"{found[column]:10.1f}" for column in COLUMNS)
    return f"{name:>5} {found['ping_pong_us']:12.0f}{times}"


def main(sizes: list[int]) -> None:
    print("medians in ping-pongs; the processor time of an exists, of all daemons")
    print("nodes ping-pong us    exists       get       set    32 set    cpu us    idle %")
    for nodes in sizes:
        found = measure(nodes)
        keep("cluster", found)
        shares = f"{found['exists_cpu_us']:10.0f}{100 * found['idle_share']:10.2f}"
        print(line(f"{nodes}", found) + shares, flush=True)
    if shutil.which("redis-server"):
        found = measure_redis()
        keep("redis", found)
        print(line("redis", found))
    else:
        print("redis-server is not installed: its figures stay as they were")
    plot()


if __name__ == "__main__":
    main([int(text) for text in sys.argv[1:]] or [2, 4, 8, 16])
