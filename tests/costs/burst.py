"""A burst of sets at one of three nodes: how many pages are lost that one pool of their size, with
plain LRU, would have kept.

    PYTHONPATH=tests .venv/bin/python -m costs.burst [POOLS...]      default: 1 3 10

One worker sets pages of 128 KiB as fast as the daemon takes them, POOLS times the node's pool in
all. Afterwards a worker of another node asks for each page.
"""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack

from harness.cluster import Cluster, Daemon
from harness.directory import wait_settled
from harness.fixtures import cluster_maker

from peercache_client import Client

NODES, POOL_BYTES, PAGE_BYTES, PAGES = 3, 256 << 20, 128 << 10, 32
SETTLED_S = 3.0


def main(*bursts: float) -> None:
    for pools in bursts or (1.0, 3.0, 10.0):
        with ExitStack() as stack:
            make = cluster_maker(stack, {}, 60.0)
            cluster = make(NODES, pool_size=POOL_BYTES)
            wait_settled(cluster.daemons)
            report(cluster, pools)


def report(cluster: Cluster, pools: float) -> None:
    count = int(pools * POOL_BYTES) // (PAGES * PAGE_BYTES) * PAGES
    keys = [f"page {i}".encode() for i in range(count)]
    took_s = fill(cluster[0], keys)
    time.sleep(SETTLED_S)
    with Client(str(cluster[1].socket_path), "burst", timeout_s=60) as client:
        kept = client.contains(keys)
    would_keep = min(count, NODES * POOL_BYTES // PAGE_BYTES)
    lost = 1 - sum(kept[-would_keep:]) / would_keep
    status = cluster[0].status()
    spill, pool = status["spill"], status["pool"]
    speed = count * PAGE_BYTES / took_s / 1e9
    print(
        f"{pools:g} pools at {speed:.2f} GB/s: {100 * lost:.0f} % lost; "
        f"{pool['evictions']} evicted, {spill['pages']} spilled, {spill['refused']} refused; free "
        + ", ".join(f"{free(daemon) >> 20} MiB" for daemon in cluster.daemons)
    )


def free(daemon: Daemon) -> int:
    pool = daemon.status()["pool"]
    return int(pool["capacity_bytes"] - pool["used_bytes"])


def fill(daemon: Daemon, keys: list[bytes]) -> float:
    with Client(str(daemon.socket_path), "burst", timeout_s=60) as client:
        region = client.alloc(PAGES * PAGE_BYTES)
        offsets, lengths = [PAGE_BYTES * i for i in range(PAGES)], [PAGE_BYTES] * PAGES
        began = time.perf_counter()
        for at in range(0, len(keys), PAGES):
            assert all(client.batch_set(keys[at : at + PAGES], region, offsets, lengths))
        return time.perf_counter() - began


if __name__ == "__main__":
    main(*map(float, sys.argv[1:]))
