"""The cost of monitoring for sets and gets, and the processor time of one scrape.

    make bench-metrics

It runs two clusters of two daemons. One has no metrics port. The other's nodes are scraped every
second, while a dashboard asks for both documents every two seconds. Both clusters get the same work
in turns, and the order alternates. The result is the median of the per-turn ratios. It also reports
the CPU time of one scrape of an idle daemon, which noise does not affect.
"""

from __future__ import annotations

import multiprocessing
import os
import statistics
import time
from multiprocessing.connection import Connection
from urllib.request import urlopen

import click
from harness.cluster import Cluster, Daemon

from peercache_client import Client

_PAGE_BYTES = 128 << 10
_BATCH_PAGES = 32
_POOL_BYTES = 256 << 20
_WATCH_S = 2.0  # one monitoring round: two scrapes of each node, one dashboard poll
_SCRAPES_AT_REST = 50


class Side:
    """One cluster, with a worker at each node."""

    def __init__(self, cluster: Cluster) -> None:
        self.daemons = cluster.daemons
        self.clients = [Client(str(one.socket_path), "bench") for one in cluster.daemons]
        self.regions = [client.alloc(_PAGE_BYTES * _BATCH_PAGES) for client in self.clients]
        self.regions[0].view[:] = os.urandom(len(self.regions[0].view))
        self._offsets = [_PAGE_BYTES * place for place in range(_BATCH_PAGES)]
        self._batches = 0

    def turn(self, seconds: float) -> float:
        """GB/s of pages set and got at the first node, and got at the second."""
        began = time.perf_counter()
        moved = 0
        while (now := time.perf_counter()) - began < seconds:
            keys = [f"{self._batches}/{place}".encode() for place in range(_BATCH_PAGES)]
            self._batches += 1
            answers = [
                self.clients[0].batch_set(keys, self.regions[0], self._offsets, _PAGE_BYTES),
                self.clients[0].batch_get(keys, self.regions[0], self._offsets, _PAGE_BYTES),
                self.clients[1].batch_get(keys, self.regions[1], self._offsets, _PAGE_BYTES),
            ]
            moved += sum(sum(map(bool, answer)) for answer in answers)
        return moved * _PAGE_BYTES / 1e9 / (now - began)

    def close(self) -> None:
        for client in self.clients:
            client.close()


def _fetch(address: str, path: str) -> int:
    with urlopen(f"http://{address}{path}", timeout=10) as answer:
        return len(answer.read())


def _watch(orders: Connection, addresses: list[str]) -> None:
    """Runs in its own process. Each message starts one monitoring round beside the measured
    turn."""
    scrape = [(address, "/metrics") for address in addresses]
    look = [(addresses[0], "/api/v1/node"), (addresses[0], "/api/v1/cluster")]
    while orders.recv():
        began = time.monotonic()
        for at, asked in ((0.2, scrape), (0.8, look), (1.2, scrape)):
            time.sleep(max(began + at - time.monotonic(), 0.0))
            for address, path in asked:
                _fetch(address, path)
        orders.send(True)


def scrape_cost(daemon: Daemon) -> tuple[float, int]:
    """(CPU seconds of the daemon, bytes) for one scrape while idle."""
    address = daemon.metrics_address()
    clock = ((~daemon.pid) << 3) | 2
    size = _fetch(address, "/metrics")
    before, began = time.clock_gettime(clock), time.monotonic()
    for _ in range(_SCRAPES_AT_REST):
        _fetch(address, "/metrics")
    scraped, took = time.clock_gettime(clock) - before, time.monotonic() - began
    before = time.clock_gettime(clock)
    time.sleep(took)  # measures the daemon's CPU use without scrapes
    return max(scraped - (time.clock_gettime(clock) - before), 0.0) / _SCRAPES_AT_REST, size


def measure(off: Side, on: Side, turns: int) -> tuple[list[float], list[float]]:
    """GB/s of each turn: (not monitored, monitored)."""
    orders, theirs = multiprocessing.Pipe()
    addresses = [daemon.metrics_address() for daemon in on.daemons]
    watcher = multiprocessing.Process(target=_watch, args=(theirs, addresses), daemon=True)
    watcher.start()

    def watched() -> float:
        orders.send(True)
        figure = on.turn(_WATCH_S)
        orders.recv()
        return figure

    for side in (off, on):
        side.turn(_WATCH_S / 2)  # first touch of memory, and connections
    figures: tuple[list[float], list[float]] = ([], [])
    for turn in range(turns):
        if turn % 2:
            figures[1].append(watched())
            figures[0].append(off.turn(_WATCH_S))
        else:
            figures[0].append(off.turn(_WATCH_S))
            figures[1].append(watched())
    orders.send(False)
    watcher.join(10)
    return figures


@click.command()
@click.option("--turns", default=60, show_default=True, help="of 4 s each")
def main(turns: int) -> None:
    options = {"pool-size": _POOL_BYTES}
    with (
        Cluster(2, options={**options, "metrics-enabled": False}) as unwatched,
        Cluster(2, options=options) as watched,
    ):
        unwatched.start()
        watched.start()
        sides = Side(unwatched), Side(watched)
        off, on = measure(*sides, turns)
        ratios = sorted(b / a for a, b in zip(off, on, strict=True))
        for side in sides:
            side.close()
        seconds, size = scrape_cost(watched[0])
    click.echo(f"without metrics     {statistics.median(off):6.3f} GB/s")
    click.echo(f"watched             {statistics.median(on):6.3f} GB/s")
    quarter = len(ratios) // 4
    click.echo(
        f"ratio               {statistics.median(ratios):6.1%}, half of the turns within "
        f"{ratios[quarter]:.1%} and {ratios[-1 - quarter]:.1%}"
    )
    click.echo(
        f"one scrape          {seconds * 1e3:6.2f} ms of a core, {size / 1000:.0f} kB: "
        f"{seconds:.2%} of a core at one a second"
    )


if __name__ == "__main__":
    main()
