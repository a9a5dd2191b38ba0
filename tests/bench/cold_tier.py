"""Writes and reads of the cold tier, beside the library's own bare loop over the same objects.

    make bench-cold-tier ARGS="--rounds 3"

The S3 server (harness/s3.py) is a process on another host: a network namespace, with a link of 5
Gbit/s in both directions. A proxy there holds each request for 20 ms (many kernels have no netem).
In each round, one after the other:

- a daemon writes the pages that its pool is about to evict; the library puts objects of these sizes
- a new daemon reads all pages because of `exists`; another one for gets of 32 MiB, of four workers
  and of one; the library gets the same objects in ranges of the same size, all in one go and 32 MiB
  at a time
- gets of a single page, and the library's; the daemon's first one also lists the removals
- the library puts 512 MiB in objects of 8 to 64 MiB, and gets them in ranges

The bare loops have as many threads as the daemon has. Prints medians of the rounds, and stores them
in docs/cold-tier.json.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import click
import obstore
import obstore.store
from harness.cluster import Cluster, Daemon
from harness.netns import Network
from harness.s3 import BUCKET, s3_server
from harness.store_proxy import StoreProxy
from harness.waiting import eventually

from bench.figures import DOCS
from peercache_client import Client
from peercached.cold.reader import RANGE_BYTES
from peercached.cold.requests import READERS, WRITERS

FIGURES = DOCS / "cold-tier.json"
PAGE_BYTES = 256 << 10
BATCH = 128  # pages of one call: 32 MiB
WRITER_POOL, READER_POOL = 3 << 30, 2 << 30
DELAY_S = 0.02
LINK_BITS_S = 5_000_000_000
CALL_S = 30.0
SINGLE_PAGES = 21
SIZED_MIB, OBJECT_MIB = 512, (8, 16, 32, 64)
TICKS_S = os.sysconf("SC_CLK_TCK")
BODY = os.urandom(OBJECT_MIB[-1] << 20)

Figures = dict[str, float]


class Worker:
    def __init__(self, daemon: Daemon) -> None:
        self.client = Client(str(daemon.socket_path), "bench", timeout_s=CALL_S)
        self.region = self.client.alloc(PAGE_BYTES * BATCH)

    def set(self, key: bytes) -> None:
        self.region.view[: len(key)] = key  # no two pages are equal
        (status,) = self.client.batch_set([key], self.region, [0], PAGE_BYTES)
        if not status:
            raise click.ClickException(f"a page could not be set: {status}")

    def get(self, keys: Sequence[bytes]) -> int:
        """How many there were."""
        found = 0
        for at in range(0, len(keys), BATCH):
            some = keys[at : at + BATCH]
            statuses = self.client.batch_get(some, self.region, _offsets(some), PAGE_BYTES)
            found += sum(map(bool, statuses))
        return found


class Bench:
    """One round. `store`: the URL of an empty prefix."""

    def __init__(self, store: str, number: int) -> None:
        self._store = store
        self._keys = [f"{number}/{at:06d}".encode() for at in range(WRITER_POOL // PAGE_BYTES)]
        self._library = obstore.store.from_url(
            store,
            client_options={"allow_http": True, "timeout": "60s"},
            retry_config={"max_retries": 0},
            unsigned_payload=True,
        )
        self._objects: list[tuple[str, int]] = []  # paths below pages/, and their sizes
        self._stored: list[bytes] = []  # keys
        self.figures: dict[str, Figures] = {}

    def run(self) -> None:
        self._daemon_writes()
        self._library_writes()
        self._find_stored()
        self._daemon_reads("read: exists", self._warm)
        self._daemon_reads("read: gets of four workers", lambda daemon: self._get(daemon, 4))
        self._daemon_reads("read one by one: gets of a worker", lambda daemon: self._get(daemon, 1))
        self._library_reads()
        self._single_pages()
        self._object_sizes()

    # --- writing

    def _daemon_writes(self) -> None:
        with self._daemon(WRITER_POOL) as daemon:
            worker = Worker(daemon)
            for key in self._keys:  # each by itself, so the pool evicts them in this order
                worker.set(key)
                worker.get([key])
            begun = self._written(daemon)
            seen = [begun]
            while seen[-1][0] - self._last_change(seen)[0] < 3.0:
                time.sleep(0.05)
                seen.append(self._written(daemon))
            ended = self._last_change(seen)
            worker.client.close()
        self._note("write: daemon", ended[1] - begun[1], ended[0] - begun[0], ended[2] - begun[2])
        listed = [meta for part in self._library.list("pages/") for meta in part]
        self._objects = sorted((meta["path"], meta["size"]) for meta in listed)

    @staticmethod
    def _written(daemon: Daemon) -> tuple[float, float, float]:
        """When, bytes, processor seconds."""
        count = daemon.status()["cold"]["bytes_written"]
        return time.monotonic(), count, _cpu_s(daemon)

    @staticmethod
    def _last_change(seen: list[tuple[float, float, float]]) -> tuple[float, float, float]:
        return next(one for one in seen if one[1] == seen[-1][1])

    def _library_writes(self) -> None:
        jobs = [(f"bare/{path}", size) for path, size in self._objects]
        self._bare("write", WRITERS, self._put, jobs)

    def _put(self, path: str, size: int) -> None:
        obstore.put(
            self._library, path, memoryview(BODY)[:size], mode="create", use_multipart=False
        )

    # --- reading

    def _find_stored(self) -> None:
        """Asks a daemon that is not measured: asking brings pages to its pool."""
        with self._reader() as daemon:
            client = Client(str(daemon.socket_path), "bench", timeout_s=CALL_S)

            def are_found() -> bool:  # the first question may be too early for a look at removals
                there = client.contains(self._keys)
                self._stored = [key for key, one in zip(self._keys, there, strict=True) if one]
                return bool(self._stored)

            eventually(are_found, 20, "pages are found")
            client.close()

    def _daemon_reads(self, name: str, read: Callable[[Daemon], int]) -> None:
        with self._reader() as daemon:
            began, cpu_s = time.monotonic(), _cpu_s(daemon)
            size = read(daemon) * PAGE_BYTES
            self._note(name, size, time.monotonic() - began, _cpu_s(daemon) - cpu_s)

    def _warm(self, daemon: Daemon) -> int:
        client = Client(str(daemon.socket_path), "bench", timeout_s=CALL_S)
        found = 0

        def is_known() -> bool:  # the first question may be too early for a look at the removals
            nonlocal found
            found = client.batch_exists(self._stored)
            return found > 0

        eventually(is_known, 20, "the pages are found")

        read = 0

        def came() -> bool:  # a daemon has no more than 64 ranges on their way
            nonlocal read
            cold = daemon.status()["cold"]
            read = int(cold["read_pages"])
            return bool(read + cold["crowded_pages"] >= found)

        eventually(came, 60, lambda: str(daemon.status()["cold"]))
        client.close()
        return read

    def _get(self, daemon: Daemon, workers: int) -> int:
        each = -(-len(self._stored) // workers)
        parts = [self._stored[at : at + each] for at in range(0, len(self._stored), each)]
        clients = [Worker(daemon) for _ in parts]
        with ThreadPoolExecutor(workers) as threads:
            found = sum(threads.map(Worker.get, clients, parts))
        for one in clients:
            one.client.close()
        return found

    def _library_reads(self) -> None:
        ranges = _ranges(self._objects)
        self._bare("read", READERS, self._get_range, ranges)
        # As the gets of one worker: the next 32 MiB begin when these have come.
        each = BATCH * PAGE_BYTES // RANGE_BYTES
        self._bare("read one by one", each, self._get_range, ranges, each)

    def _get_range(self, path: str, start: int, end: int) -> None:
        obstore.get_range(self._library, path, start=start, end=end)

    def _object_sizes(self) -> None:
        for mib in OBJECT_MIB:
            objects = [(f"sized/{mib}/{at}", mib << 20) for at in range(SIZED_MIB // mib)]
            self._bare(f"write objects of {mib} MiB", WRITERS, self._put, objects)
            self._bare(f"read objects of {mib} MiB", READERS, self._get_range, _ranges(objects))

    def _single_pages(self) -> None:
        with self._reader() as daemon:
            worker = Worker(daemon)
            step = len(self._stored) // SINGLE_PAGES
            keys = self._stored[: step * SINGLE_PAGES : step]
            times = _times_s(worker.get, [[key] for key in keys])
            worker.client.close()
        path, size = self._objects[0]

        def get(start: int) -> None:
            obstore.get_range(self._library, path, start=start, length=PAGE_BYTES)

        bare = _times_s(
            get, range(0, min(size, SINGLE_PAGES * PAGE_BYTES) - PAGE_BYTES, PAGE_BYTES)
        )
        self.figures["one page, ms"] = {
            "first": times[0] * 1e3,
            "later": median(times[1:]) * 1e3,
            "bare loop": median(bare) * 1e3,
        }

    # --- both

    @contextmanager
    def _daemon(self, pool_bytes: int) -> Iterator[Daemon]:
        options: dict[str, str | int | float] = {
            "pool-size": pool_bytes,
            "cold-store": self._store,
            "spill-bytes-per-s": 0,
        }
        with Cluster(1, options=options) as cluster:
            cluster.start(60.0)
            yield cluster[0]

    @contextmanager
    def _reader(self) -> Iterator[Daemon]:
        """A new daemon that knows of all objects."""
        with self._daemon(READER_POOL) as daemon:
            eventually(
                lambda: daemon.status()["cold"]["objects"] == len(self._objects),
                60,
                lambda: str(daemon.status()["cold"]),
            )
            yield daemon

    def _bare(
        self,
        kind: str,
        threads: int,
        call: Callable[..., None],
        jobs: Sequence[Any],
        at_once: int = 1 << 30,
    ) -> None:
        sizes = sum(job[-1] - (job[1] if len(job) == 3 else 0) for job in jobs)
        with ThreadPoolExecutor(threads) as pool:
            began, cpu_s = time.monotonic(), time.process_time()
            for at in range(0, len(jobs), at_once):
                for done in [pool.submit(call, *job) for job in jobs[at : at + at_once]]:
                    done.result()
            took_s = time.monotonic() - began
        self._note(f"{kind}: bare loop", sizes, took_s, time.process_time() - cpu_s)

    def _note(self, name: str, size: float, took_s: float, cpu_s: float) -> None:
        self.figures[name] = {
            "gb_s": size / 1e9 / took_s,
            "cpu_s_per_gb": cpu_s / (size / 1e9),
        }


def _ranges(objects: Sequence[tuple[str, int]]) -> list[tuple[str, int, int]]:
    return [
        (path, at, min(at + RANGE_BYTES, size))
        for path, size in objects
        for at in range(0, size, RANGE_BYTES)
    ]


def _times_s(call: Callable[[Any], object], each: Iterable[Any]) -> list[float]:
    times = []
    for one in each:
        began = time.perf_counter()
        call(one)
        times.append(time.perf_counter() - began)
    return times


def _offsets(keys: Sequence[bytes]) -> list[int]:
    return [at * PAGE_BYTES for at in range(len(keys))]


def _cpu_s(daemon: Daemon) -> float:
    fields = Path(f"/proc/{daemon.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_S


def measure(rounds: int) -> dict[str, Figures]:
    found: list[dict[str, Figures]] = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        network = stack.enter_context(Network(["store", "node"]))
        network.enter("node")
        for host in ("store", "node"):
            network.slow_down(host, LINK_BITS_S)
        at = network.address("store"), network.launcher("store")
        server = stack.enter_context(s3_server(folder, *at))
        proxy = stack.enter_context(StoreProxy(server.endpoint, host=at[0], launcher=at[1]))
        proxy.plan(delay_s=DELAY_S)
        os.environ |= server.environment(proxy.endpoint)
        for number in range(rounds):
            bench = Bench(f"s3://{BUCKET}/round-{number}", number)
            bench.run()
            found.append(bench.figures)
            print(f"round {number + 1}: {json.dumps(bench.figures)}", flush=True)
    return {
        what: {name: round(median(one[what][name] for one in found), 3) for name in figures}
        for what, figures in found[0].items()
    }


@click.command()
@click.option("--rounds", default=3, show_default=True)
def main(rounds: int) -> None:
    figures = measure(rounds)
    for what, values in figures.items():
        bare = figures.get(f"{what.partition(':')[0]}: bare loop", {})
        share = f"{values['gb_s'] / bare['gb_s']:8.0%} of it" if bare else ""
        print(f"{what:<34}" + "".join(f"{name} {n:<10g}" for name, n in values.items()) + share)
    FIGURES.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
