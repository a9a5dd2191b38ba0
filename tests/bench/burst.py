"""How many pages a burst of sets at one of three nodes loses, and its cost for others.

Lost pages are those that one pool of the nodes' size, with plain LRU, would have kept. The cost is
that of the worker, and of a reader of the other nodes.

    make bench-burst ARGS="[--rate GB_PER_S] [--budget BYTES_PER_S] [POOLS...]"     default: 1 3 10

One worker sets pages of 128 KiB, POOLS times the node's pool in all: as fast as the daemon takes
them, or at a rate. Meanwhile a worker of the second node reads pages of the third. Afterwards it
asks for each page of the burst.
"""

from __future__ import annotations

import time
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from statistics import quantiles
from threading import Event, Thread

from harness.cluster import Cluster, Daemon
from harness.directory import wait_settled
from harness.fixtures import cluster_maker

from peercache_client import Client

NODES, POOL_BYTES, PAGE_BYTES, PAGES = 3, 256 << 20, 128 << 10, 32
READ_PAGES, READS_PER_S = 8, 50
SETTLED_S = 3.0


def main() -> None:
    parser = ArgumentParser()
    parser.add_argument("--rate", type=float, metavar="GB_PER_S")
    parser.add_argument("--budget", type=int, metavar="BYTES_PER_S")
    parser.add_argument("pools", type=float, nargs="*", default=[1.0, 3.0, 10.0])
    given = parser.parse_args()
    budget = {} if given.budget is None else {"spill_bytes_per_s": given.budget}
    for pools in given.pools:
        with ExitStack() as stack:
            make = cluster_maker(stack, {}, 60.0)
            cluster = make(NODES, pool_size=POOL_BYTES, replica_share=0, **budget)
            wait_settled(cluster.daemons)
            report(cluster, pools, given.rate)


def report(cluster: Cluster, pools: float, rate: float | None) -> None:
    count = int(pools * POOL_BYTES) // (PAGES * PAGE_BYTES) * PAGES
    keys = [f"page {i}".encode() for i in range(count)]
    read = [f"read {i}".encode() for i in range(READ_PAGES)]
    fill(cluster[2], read, READ_PAGES)
    with reading(cluster[1], read) as calm:
        time.sleep(1.0)
    with reading(cluster[1], read) as reads:
        began = time.perf_counter()
        sets = fill(cluster[0], keys, PAGES, rate)
        took_s = time.perf_counter() - began
    time.sleep(SETTLED_S)
    with Client(str(cluster[1].socket_path), "burst", timeout_s=60) as client:
        kept = client.contains(keys)
    would_keep = min(count, NODES * POOL_BYTES // PAGE_BYTES)
    lost = 1 - sum(kept[-would_keep:]) / would_keep
    status = cluster[0].status()
    spill, pool = status["spill"], status["pool"]
    print(
        f"{pools:g} pools at {count * PAGE_BYTES / took_s / 1e9:.2f} GB/s: "
        f"{100 * lost:.0f} % lost; "
        f"{pool['evictions']} evicted, {spill['pages']} spilled, {spill['refused']} refused; free "
        + ", ".join(f"{free(daemon) >> 20} MiB" for daemon in cluster.daemons)
        + f"; a set of {PAGES} pages {times(sets)}, a read of {READ_PAGES} {times(reads)}, "
        f"before {times(calm)}",
        flush=True,
    )


def times(calls_s: list[float]) -> str:
    if len(calls_s) < 2:
        return "not measured"
    cuts = quantiles(calls_s, n=100)
    return f"{1e3 * cuts[49]:.1f} ms (p99 {1e3 * cuts[98]:.1f})"


def free(daemon: Daemon) -> int:
    pool = daemon.status()["pool"]
    return int(pool["capacity_bytes"] - pool["used_bytes"])


def fill(daemon: Daemon, keys: list[bytes], pages: int, rate: float | None = None) -> list[float]:
    """Sets the keys, so many at a time; returns how long each call took."""
    calls_s: list[float] = []
    with Client(str(daemon.socket_path), "burst", timeout_s=60) as client:
        region = client.alloc(pages * PAGE_BYTES)
        offsets, lengths = [PAGE_BYTES * i for i in range(pages)], [PAGE_BYTES] * pages
        began = time.perf_counter()
        for at in range(0, len(keys), pages):
            if rate is not None:
                due = began + at * PAGE_BYTES / (rate * 1e9)
                time.sleep(max(0.0, due - time.perf_counter()))
            before = time.perf_counter()
            assert all(client.batch_set(keys[at : at + pages], region, offsets, lengths))
            calls_s.append(time.perf_counter() - before)
    return calls_s


@contextmanager
def reading(daemon: Daemon, keys: list[bytes]) -> Iterator[list[float]]:
    """A worker reads the keys again and again meanwhile; gives how long each call took."""
    calls_s: list[float] = []
    ended = Event()

    def read() -> None:
        with Client(str(daemon.socket_path), "burst", timeout_s=60) as client:
            region = client.alloc(len(keys) * PAGE_BYTES)
            offsets = [PAGE_BYTES * i for i in range(len(keys))]
            lengths = [PAGE_BYTES] * len(keys)
            while not ended.wait(1 / READS_PER_S):
                before = time.perf_counter()
                client.batch_get(keys, region, offsets, lengths)
                calls_s.append(time.perf_counter() - before)

    thread = Thread(target=read)
    thread.start()
    try:
        yield calls_s
    finally:
        ended.set()
        thread.join()


if __name__ == "__main__":
    main()
