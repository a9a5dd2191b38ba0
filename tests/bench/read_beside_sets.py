"""How long a get takes while other workers of its node set pages, beside one of a calm node.

    make bench-read-beside-sets ARGS="[--setters 2] [--seconds 10] [--copy-threads 3]"

A node of two has so many workers that set batches of 16 MiB all the time. Another worker there gets
16 MiB 20 times a second: first from its own node's pool, then from the other node's. With fewer
than four processors, a daemon has no threads that help to copy unless `copy_threads` is set.
"""

from __future__ import annotations

import multiprocessing
import time
from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count
from statistics import quantiles
from typing import Final

from harness.cluster import Daemon
from harness.directory import wait_settled
from harness.fixtures import cluster_maker

from peercache_client import Client

PAGE_BYTES, PAGES, GETS_PER_S = 256 << 10, 64, 20
OFFSETS: Final = [PAGE_BYTES * i for i in range(PAGES)]
PROCESSES: Final = multiprocessing.get_context("spawn")


def main() -> None:
    parser = ArgumentParser()
    parser.add_argument("--setters", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--copy-threads", type=int, default=3)
    given = parser.parse_args()
    options = {"pool_size": 1 << 30, "replica_share": 0, "copy_threads": given.copy_threads}
    with ExitStack() as stack:
        cluster = cluster_maker(stack, {}, 60.0)(2, **options)
        wait_settled(cluster.daemons)
        here = cluster[0]
        for holder in cluster.daemons:
            keys = [f"{holder.node_id} {i}".encode() for i in range(PAGES)]
            set_all(str(holder.socket_path), keys)
            calm = gets(here, keys, given.seconds)
            with setting(here, given.setters):
                set_all(str(holder.socket_path), keys)  # the sets have evicted them
                beside = gets(here, keys, given.seconds)
            whose = "its own" if holder is here else "the other"
            print(f"from {whose} node's pool: {calm}; beside sets {beside}", flush=True)


def set_all(path: str, keys: Sequence[bytes]) -> None:
    with Client(path, "bench", timeout_s=60) as client:
        region = client.alloc(PAGES * PAGE_BYTES)
        assert all(client.batch_set(keys, region, OFFSETS, PAGE_BYTES))


def gets(daemon: Daemon, keys: Sequence[bytes], seconds: float) -> str:
    calls_s, misses = [], 0
    end = time.monotonic() + seconds
    with Client(str(daemon.socket_path), "bench", timeout_s=60) as client:
        region = client.alloc(PAGES * PAGE_BYTES)
        while time.monotonic() < end:
            time.sleep(1 / GETS_PER_S)
            began = time.perf_counter()
            statuses = client.batch_get(keys, region, OFFSETS, PAGE_BYTES)
            calls_s.append(1e3 * (time.perf_counter() - began))
            misses += len(keys) - sum(map(bool, statuses))
    cuts = quantiles(calls_s, n=100)
    return f"{cuts[49]:.1f} ms (p99 {cuts[98]:.1f}, {misses} misses)"


@contextmanager
def setting(daemon: Daemon, setters: int) -> Iterator[None]:
    """So many processes set pages meanwhile."""
    processes = [
        PROCESSES.Process(target=set_for_ever, args=(str(daemon.socket_path), number), daemon=True)
        for number in range(setters)
    ]
    for process in processes:
        process.start()
    time.sleep(2.0)  # all of them set
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.join()


def set_for_ever(path: str, setter: int) -> None:
    with Client(path, "bench", timeout_s=60) as client:
        region = client.alloc(PAGES * PAGE_BYTES)
        for turn in count():
            keys = [f"{setter} {turn} {i}".encode() for i in range(PAGES)]
            client.batch_set(keys, region, OFFSETS, PAGE_BYTES)


if __name__ == "__main__":
    main()
