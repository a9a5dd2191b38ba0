"""Loading, computing, and choosing between them by forecast: the time to the first token.

    make bench-forecast ARGS="[CELL...]"        default: all cells; 12 minutes, as root

Eight real daemons, each in a network namespace. Each sends at most BITS_PER_S from its data port,
so that the network is the limit and not this machine's processors. A worker at each node has
requests in a Poisson process. A request has a prefix that one other node holds, and tokens of its
own. The engine is a queue that takes so many tokens per second. All else is real: clients,
forecasts, gets, and their deadlines.

Three policies have the same arrivals at the same time: load all that is found, compute all, and
`worth.py`, which begins as a cell's trouble does. Computed prefixes are not stored, so that later
requests meet the same trouble. Keeps the figures in docs/forecast.json, and draws
docs/forecast.svg.
"""

# /// script
# dependencies = ["matplotlib>=3.8"]
# ///

from __future__ import annotations

import contextlib
import itertools
import json
import os
import platform
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from harness.cluster import Cluster, Daemon
from harness.directory import wait_settled
from harness.netns import Network

from bench.figures import DOCS, pyplot
from peercache_bench.daemons import wait_until
from peercache_client import Client, Region
from peercache_client.worth import Worth

FIGURES, PLOT = DOCS / "forecast.json", DOCS / "forecast.svg"
NODES = 8
BITS_PER_S = 800_000_000
SLOW_BITS_PER_S = 8_000_000
FLOWS = 8  # in the crowded link, beside ours
DISK_STALL_MS = 1000
PAGE_BYTES, PAGE_TOKENS = 128 << 10, 64
PREFIX_PAGES, TAIL_PAGES = 32, 8
PREFIXES = 6  # at each node
REQUESTS_PER_S = 1.5  # of a node
WARM_UP_S, RUN_S = 4.0, 20.0
ROUNDS = {"cold pairs": 2, "crowded link": 3}  # of cells whose p99 differs between runs
GET_TIMEOUT_S = 10.0
COMPUTE_TOKENS_PER_S = (5_000, 15_000)
CELLS = ("all well", "slow holder", "cold pairs", "crowded link", "slow disk")
POLICIES = ("load", "compute", "ours")
SINK_PORT = 9
TROUBLED = 1  # the node of a cell's trouble


class Arrival(NamedTuple):
    at_s: float
    node: int
    holder: int
    prefix: int
    number: int


def arrivals(seconds: float, seed: int) -> list[Arrival]:
    dice = random.Random(seed)
    found = []
    for node in range(NODES):
        at_s = dice.expovariate(REQUESTS_PER_S)
        while at_s < seconds:
            holder = dice.choice([other for other in range(NODES) if other != node])
            found.append((at_s, node, holder, dice.randrange(PREFIXES)))
            at_s += dice.expovariate(REQUESTS_PER_S)
    return [Arrival(*each, number) for number, each in enumerate(sorted(found))]


def keys_of(holder: int, prefix: int) -> list[bytes]:
    return [f"{holder}/{prefix}/{page}".encode() for page in range(PREFIX_PAGES)]


class Engine:
    """Computes one request after the other."""

    def __init__(self, tokens_per_s: float) -> None:
        self._tokens_per_s = tokens_per_s
        self._lock = threading.Lock()
        self._free_at_s = 0.0

    def compute(self, pages: int) -> None:
        with self._lock:
            begin_s = max(time.monotonic(), self._free_at_s)
            self._free_at_s = begin_s + pages * PAGE_TOKENS / self._tokens_per_s
            end_s = self._free_at_s
        time.sleep(max(0.0, end_s - time.monotonic()))


class Worker:
    def __init__(self, daemon: Daemon) -> None:
        self.client = Client(str(daemon.socket_path), "forecast", timeout_s=GET_TIMEOUT_S)
        self._regions: list[Region] = []

    @contextlib.contextmanager
    def region(self) -> Iterator[Region]:
        try:
            region = self._regions.pop()
        except IndexError:
            region = self.client.alloc(PREFIX_PAGES * PAGE_BYTES)
        yield region
        self._regions.append(region)

    def get(self, keys: list[bytes], give_up_s: float | None = None) -> int:
        """The pages before the first one that did not come."""
        if not keys:
            return 0
        offsets = [PAGE_BYTES * i for i in range(len(keys))]
        with self.region() as region:
            got = self.client.batch_get(keys, region, offsets, PAGE_BYTES, give_up_s=give_up_s)
        return next((i for i, status in enumerate(got) if not status), len(keys))


class Run:
    """One policy under the arrivals."""

    def __init__(self, policy: str, workers: list[Worker], tokens_per_s: float) -> None:
        self.took_s: list[float] = []
        self.policy = policy
        self._workers = workers
        self._engines = [Engine(tokens_per_s) for _ in workers]
        self._worths = [Worth(PAGE_TOKENS) for _ in workers]

    def play(self, seconds: float, seed: int) -> list[float]:
        """The times to the first token, in seconds."""
        self.took_s = []
        began_s = time.monotonic()
        with ThreadPoolExecutor(256) as threads:
            futures = []
            for each in arrivals(seconds, seed):
                time.sleep(max(0.0, began_s + each.at_s - time.monotonic()))
                futures.append(threads.submit(self._serve, each, time.monotonic()))
            self.took_s = [each.result() for each in futures]
        return self.took_s

    def _serve(self, arrival: Arrival, began_s: float) -> float:
        prefix = keys_of(arrival.holder, arrival.prefix)
        tail = [f"{arrival.number} of {began_s}/{page}".encode() for page in range(TAIL_PAGES)]
        loaded = 0
        if self.policy == "load":
            worker = self._workers[arrival.node]
            present = worker.client.batch_exists(prefix)
            loaded = worker.get(prefix[:present])
        elif self.policy == "ours":
            loaded = self._load_if_worth(arrival.node, prefix, tail)
        self._engines[arrival.node].compute(PREFIX_PAGES + TAIL_PAGES - loaded)
        took_s = time.monotonic() - began_s
        if self.policy == "ours":
            self._worths[arrival.node].stored([*prefix[loaded:], *tail])
        return took_s

    def _load_if_worth(self, node: int, prefix: list[bytes], tail: list[bytes]) -> int:
        worth, worker = self._worths[node], self._workers[node]
        keys = [*prefix, *tail]
        forecast = worker.client.forecast(keys, judged=worth.take_news())
        wanted = prefix[: worth.judge(keys, forecast)]
        if not wanted:
            return 0
        loaded = worker.get(wanted, worth.give_up_s(wanted))
        worth.loaded(wanted, len(wanted) - loaded)
        return loaded


class Bench:
    """Eight daemons with their prefixes."""

    def __init__(self, cell: str, network: Network, cluster: Cluster) -> None:
        self._cell = cell
        self._network = network
        self._cluster = cluster
        self._crowd = contextlib.ExitStack()
        for place, daemon in enumerate(cluster.daemons):
            port = daemon.status()["node"]["data_port"]
            network.slow_down(daemon.node_id, BITS_PER_S, port)
            self._store(place, daemon)
        wait_settled(cluster.daemons, 60)
        self.workers = [Worker(daemon) for daemon in cluster.daemons]

    @staticmethod
    def _store(place: int, daemon: Daemon) -> None:
        """In small batches: the disk skips pages that come too quickly."""

        def written() -> bool:
            return not daemon.status()["disk"].get("queued_pages", 0)

        at_once = PREFIX_PAGES // 4
        offsets = [PAGE_BYTES * i for i in range(at_once)]
        with Client(str(daemon.socket_path), "forecast", timeout_s=30) as client:
            pages = client.alloc(at_once * PAGE_BYTES)
            pages.view[:] = os.urandom(at_once * PAGE_BYTES)
            for prefix, begin in itertools.product(
                range(PREFIXES), range(0, PREFIX_PAGES, at_once)
            ):
                keys = keys_of(place, prefix)[begin : begin + at_once]
                done = client.batch_set(keys, pages, offsets, PAGE_BYTES)
                assert all(done), done
                wait_until(written, 60, "the pages are on disk")

    def _tc(self, *command: str) -> None:
        launcher = self._network.launcher(self._cluster[TROUBLED].node_id)
        subprocess.run([*launcher, "tc", *command], check=True)

    def trouble(self) -> None:
        if self._cell == "slow holder":
            on = ("dev", "eth0", "parent", "1:", "classid", "1:2")
            rate = ("rate", f"{SLOW_BITS_PER_S}bit", "burst", "128k")
            self._tc("class", "replace", *on, "htb", *rate)
        if self._cell == "crowded link":
            self._crowd.enter_context(self._flows())

    @contextlib.contextmanager
    def _flows(self) -> Iterator[None]:
        """Others send as much as they can over the troubled node's link."""
        source, to = self._cluster[TROUBLED].node_id, self._cluster[NODES - 1].node_id
        address = self._network.address(to)
        match = ("match", "ip", "dport", str(SINK_PORT), "0xffff", "flowid", "1:2")
        self._tc(*("filter", "add", "dev", "eth0", "parent", "1:", "protocol", "ip", "u32", *match))
        programs = [(to, _SINK, ())] + [(source, _SOURCE, (address,))] * FLOWS
        running = []
        for host, program, arguments in programs:
            command = [*self._network.launcher(host), sys.executable, "-c", program, *arguments]
            running.append(
                subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            )
            assert running[-1].stdout is not None
            running[-1].stdout.readline()  # it listens, or is connected
        try:
            yield
        finally:
            for each in running:
                each.kill()
                each.wait()

    def close(self) -> None:
        self._crowd.close()
        for worker in self.workers:
            worker.client.close()

    def judged(self) -> dict[str, int]:
        names = ("cut_pages", "given_up_pages", "cut_us", "computed_us")
        told = [daemon.status()["operations"] for daemon in self._cluster.daemons]
        return {name: sum(each[name] for each in told) for name in names}


_SINK = f"""
import socket, threading
listener = socket.create_server(("", {SINK_PORT}))
print("listens", flush=True)
def drain(connection):
    room = bytearray(1 << 20)
    while connection.recv_into(room): pass
while True: threading.Thread(target=drain, args=(listener.accept()[0],), daemon=True).start()
"""
_SOURCE = f"""
import socket, sys
stream = socket.create_connection((sys.argv[1], {SINK_PORT}))
print("connected", flush=True)
while True: stream.sendall(bytes(1 << 20))
"""


@contextlib.contextmanager
def bench_of(cell: str) -> Iterator[Bench]:
    options: dict[str, Any] = {"pool-size": "64MiB", "replica-share": "0"}
    cluster = Cluster(NODES, options=options, patience=4)
    if cell == "slow disk":
        # Its prefixes fit on the disk, and not in the pool.
        cluster[TROUBLED].options |= {
            "pool-size": "16MiB",
            "spill-bytes-per-s": "0",
            "disk-enabled": True,
            "disk-path": str(cluster.folder / "disk"),
            "disk-size": "256MiB",
            "faults": f"seed=1,disk_read_stall=1,disk_stall_ms={DISK_STALL_MS}",
        }
    with cluster, Network([daemon.node_id for daemon in cluster.daemons]) as network:
        network.start(cluster)
        cluster.wait_complete(60)
        bench = Bench(cell, network, cluster)
        try:
            yield bench
        finally:
            bench.close()


def measure(cell: str, tokens_per_s: int, run_s: float = RUN_S, rounds: int = 1) -> dict[str, Any]:
    """Each round has other arrivals, and new daemons. `load` and `ours` have eight daemons each,
    and run at the same time: what else the machine does meets both."""
    took_s: dict[str, list[float]] = {policy: [] for policy in POLICIES}
    judged: Counter[str] = Counter()
    for seed in range(tokens_per_s, tokens_per_s + 2 * rounds, 2):
        with bench_of(cell) as loading, bench_of(cell) as choosing:
            load, ours = (
                Run(policy, bench.workers, tokens_per_s)
                for policy, bench in (("load", loading), ("ours", choosing))
            )
            if cell != "cold pairs":
                _together([load, ours], WARM_UP_S, seed + 1)
            loading.trouble()
            choosing.trouble()
            runs = [load, Run("compute", loading.workers, tokens_per_s), ours]
            _together(runs, run_s, seed)
            judged.update(choosing.judged())
        for run in runs:
            took_s[run.policy] += run.took_s
    return {policy: _figures(took_s[policy]) for policy in POLICIES} | judged


def _together(runs: list[Run], seconds: float, seed: int) -> None:
    with ThreadPoolExecutor(len(runs)) as threads:
        for each in [threads.submit(run.play, seconds, seed) for run in runs]:
            each.result()


def _figures(took_s: list[float]) -> dict[str, float]:
    ordered = sorted(took_s)
    p50_s, p99_s = (round(ordered[int(each * (len(ordered) - 1))], 4) for each in (0.5, 0.99))
    return {"p50_s": p50_s, "p99_s": p99_s, "requests": len(ordered)}


def ratio(cell: dict[str, Any]) -> float:
    better = min(cell["load"]["p99_s"], cell["compute"]["p99_s"])
    return float(cell["ours"]["p99_s"] / better)


def main(wanted: list[str]) -> None:
    figures: dict[str, Any] = json.loads(FIGURES.read_text()) if FIGURES.exists() else {}
    cpus = os.cpu_count()
    figures["machine"] = f"{cpus} processors, Linux {platform.release()}, all nodes on one host"
    print(f"{'cell':<14} {'tokens/s':>8}  p50 / p99 s: {'load':>13} {'compute':>13} {'ours':>13}")
    for cell, rate in itertools.product(wanted, COMPUTE_TOKENS_PER_S):
        before = os.getloadavg()[0]
        found = measure(cell, rate, rounds=ROUNDS.get(cell, 1))
        others = {"load_before": round(before, 1), "load_after": round(os.getloadavg()[0], 1)}
        figures[f"{cell}, {rate} tokens/s"] = found | others
        times = [f"{found[each]['p50_s']:6.2f}/{found[each]['p99_s']:6.2f}" for each in POLICIES]
        print(f"{cell:<14} {rate:>8} {'':14}{' '.join(times)}  x{ratio(found):.2f}", flush=True)
        FIGURES.write_text(json.dumps(figures, indent=1) + "\n")
    plot()


def plot() -> None:
    plt = pyplot()

    figures = json.loads(FIGURES.read_text())
    made, axes = plt.subplots(1, len(COMPUTE_TOKENS_PER_S), figsize=(13, 4.5))
    for axis, rate in zip(axes, COMPUTE_TOKENS_PER_S, strict=True):
        cells = [each for each in CELLS if f"{each}, {rate} tokens/s" in figures]
        for number, policy in enumerate(POLICIES):
            found = [figures[f"{cell}, {rate} tokens/s"][policy]["p99_s"] for cell in cells]
            places = [place + 0.27 * (number - 1) for place in range(len(cells))]
            label = {"load": "always load", "compute": "always compute", "ours": "by forecast"}
            axis.bar(places, found, 0.25, label=label[policy])
        axis.set_title(f"p99 of the time to the first token, s; {rate:,} tokens/s", fontsize=10)
        shown = [f"{cell}\nx{ratio(figures[f'{cell}, {rate} tokens/s']):.2f}" for cell in cells]
        axis.set_xticks(range(len(cells)), shown)
        axis.set_yscale("log")
        axis.grid(alpha=0.3, axis="y")
        axis.legend(fontsize=8)
    made.tight_layout()
    made.savefig(PLOT, metadata={"Date": None})


if __name__ == "__main__":
    main(sys.argv[1:] or list(CELLS))
