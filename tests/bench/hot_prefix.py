"""One prompt that many nodes read: how long the slowest reader takes, with two and with seven.

    make bench-hot-prefix ARGS=--new

There are eight real daemons, each in a network namespace. Each sends at most 400 Mbit/s, so that
the network is the limit and not this machine's processors. First, each reader alone reads some
prefixes of others, so it knows how long that takes. Then a worker at the first node sets a prefix
of 8 MiB. In each round, two or seven other nodes read it at the same time. With --new, each round
has a prefix of its own, so all reads are first ones.
"""

from __future__ import annotations

import sys
import threading
import time

from harness.cluster import Cluster, Daemon
from harness.directory import wait_settled
from harness.netns import Network

from peercache_client import Client

NODES, READERS = 8, (2, 7)
PAGES, PAGE_BYTES = 64, 128 << 10
BITS_PER_S = 400_000_000
ROUNDS = 8
WARM_UPS = 3
PAUSE_S = 1.0


class Reader:
    def __init__(self, socket_path: str) -> None:
        self.client = Client(socket_path, "hot", timeout_s=60)
        self.region = self.client.alloc(PAGES * PAGE_BYTES)
        self.took_s = 0.0

    def read(self, keys: list[str], together: threading.Barrier | None = None) -> None:
        if together is not None:
            together.wait()
        began = time.perf_counter()
        offsets = [PAGE_BYTES * i for i in range(PAGES)]
        got = self.client.batch_get(keys, self.region, offsets, [PAGE_BYTES] * PAGES)
        self.took_s = time.perf_counter() - began
        assert all(got), got


def set_prefix(daemon: Daemon, name: str) -> list[str]:
    with Client(str(daemon.socket_path), "hot", timeout_s=60) as setting:
        pages = setting.alloc(PAGES * PAGE_BYTES)
        keys = [f"{name}, page {i}" for i in range(PAGES)]
        offsets = [PAGE_BYTES * i for i in range(PAGES)]
        assert all(setting.batch_set(keys, pages, offsets, [PAGE_BYTES] * PAGES))
    return keys


def rounds(cluster: Cluster, readers: int, anew: bool) -> list[float]:
    """The time of the slowest reader in each round, in seconds."""
    reading = [Reader(str(daemon.socket_path)) for daemon in cluster.daemons[1 : readers + 1]]
    for number in range(WARM_UPS):
        for place, one in enumerate(reading):
            other = cluster.daemons[1 + (place + 1) % (NODES - 1)]
            one.read(set_prefix(other, f"warm-up {number} of {place} of {readers}"))
    slowest = []
    for number in range(ROUNDS):
        if anew or number == 0:
            keys = set_prefix(cluster[0], f"{readers} readers, prefix {number}")
        together = threading.Barrier(readers)
        threads = [threading.Thread(target=one.read, args=(keys, together)) for one in reading]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        slowest.append(max(one.took_s for one in reading))
        time.sleep(PAUSE_S)
    return slowest


def measure(replica_share: str, anew: bool) -> dict[int, list[float]]:
    cluster = Cluster(NODES, options={"pool-size": "256MiB", "replica-share": replica_share})
    with cluster, Network([daemon.node_id for daemon in cluster.daemons]) as network:
        network.start(cluster)
        cluster.wait_complete(60)
        wait_settled(cluster.daemons, 60)
        for daemon in cluster.daemons:
            network.slow_down(daemon.node_id, BITS_PER_S)
        return {readers: rounds(cluster, readers, anew) for readers in READERS}


def main() -> None:
    alone_s = PAGES * PAGE_BYTES * 8 / BITS_PER_S
    print(f"one reader of an idle holder: {alone_s:.2f} s at least")
    for share in ("0", "0.25"):
        print(f"replica_share = {share}; the slowest reader in each round, in such times")
        for readers, slowest in measure(share, "--new" in sys.argv).items():
            print(
                f"{readers:2d} readers", *(f"{took / alone_s:6.2f}" for took in slowest), flush=True
            )


if __name__ == "__main__":
    main()
