"""Gets over RDMA, compared in turns with ib_read_bw and bare READs. Of the daemons, one is the
holder, one reader verifies headers, and the other also verifies checksums.

On a shared machine rates change from second to second. So each turn measures the wire again, and
shares are computed within a turn. The medians over the turns are shown.
"""

import itertools
import statistics
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from peercache_bench import perftest
from peercache_bench.bare_reads import BareReads
from peercache_bench.daemons import Cluster, Daemon
from peercache_bench.transfers import fill, key_names
from peercache_client import Client, Region

FEW_THREADS, MANY_THREADS = 2, 16
# Queue pairs per rail that a read of some MiB uses (native/transfer/rdma/rdma_engine.cc).
_QUEUE_PAIRS = 2
_TIMEOUT_S = 30.0
_START_S = 90.0
_SPARE_POOL_BYTES = 64 << 20


class NoRdma(Exception):
    """The daemons started, but without these devices. The text says why."""


@dataclass
class RdmaFigures:
    """The figures for one page size. Rates are in GB/s (1e9 bytes). Shares are of the same turn's
    ib_read_bw (None without it), and of its bare READs over the same memory."""

    page_bytes: int
    batch: int
    wire_gbps: float | None
    bare_gbps: float
    header_gbps: float
    checksum_gbps: float
    header_share: float | None
    checksum_share: float | None
    header_of_bare: float
    checksum_of_bare: float
    few_threads_gbps: float
    many_threads_gbps: float
    many_of_few: float
    # Sums over all gets that followed an exists, in all turns.
    lookups: int
    control_events: int
    retried: int  # pages read twice: stale, or their channel broke; each such batch adds a lookup
    misses: int
    wrong_pages: int


@dataclass
class Side:
    """One reading daemon and the buffer of its worker."""

    daemon: Daemon
    client: Client
    region: Region
    lookups: int = 0
    control_events: int = 0
    retried: int = 0
    misses: int = 0

    def counters(self) -> tuple[int, int, int]:
        """(lookups, events, retried) since the daemon's start."""
        daemon: dict[str, Any] = self.client.stats()["daemon"]
        operations = daemon["operations"]
        return operations["lookups_asked"], daemon["events_posted"], operations["stale_retries"]


@dataclass
class Work:
    """The keys and offsets of one page size; the holder has set all of them."""

    page_bytes: int
    keys: list[str]
    offsets: list[int] = field(default_factory=list)

    @property
    def size_bytes(self) -> int:
        return self.page_bytes * len(self.keys)

    def batches(self, pages: int) -> list[tuple[list[str], list[int]]]:
        return [
            (self.keys[i : i + pages], self.offsets[i : i + pages])
            for i in range(0, len(self.keys), pages)
        ]


class RdmaBench:
    """A context manager with three daemons. The holder uses the first half of the devices, the
    readers the second half.

    NoRdma if the daemons cannot use them.
    """

    def __init__(self, devices: Sequence[str], size_bytes: int) -> None:
        self.size_bytes = size_bytes
        holders = list(devices[: (len(devices) + 1) // 2])
        readers = list(devices[len(devices) // 2 :])
        self._cluster = Cluster(
            3, options={"protocol": "rdma", "heartbeat-interval-s": 1, "member-ttl-s": 10}
        )
        for daemon, names, verify in zip(
            self._cluster.daemons,
            (holders, readers, readers),
            ("checksum", "header", "checksum"),
            strict=True,
        ):
            daemon.options |= {"device-names": ",".join(names), "verify": verify}
            daemon.options["pool-size"] = _SPARE_POOL_BYTES
        self._cluster.daemons[0].options["pool-size"] = 2 * size_bytes + _SPARE_POOL_BYTES

    def __enter__(self) -> "RdmaBench":
        try:
            self._cluster.start(_START_S)
            daemons = self._cluster.daemons
            rails = [daemon.status()["transport"]["rails"] for daemon in daemons]
            if not all(rails):
                raise NoRdma("the daemons have no rails: peercachectl doctor")
            self._wires = list(zip(*(map(_port, of) for of in rails[:2]), strict=False))
            clients = [
                Client(str(one.socket_path), namespace="bench", timeout_s=_TIMEOUT_S)
                for one in daemons
            ]
            regions = [client.alloc(self.size_bytes) for client in clients]
        except BaseException:
            self._cluster.__exit__(None, None, None)
            raise
        self._holder, self._source = clients[0], regions[0]
        self._by_header, self._by_sum = (Side(daemons[i], clients[i], regions[i]) for i in (1, 2))
        return self

    def __exit__(self, *_: object) -> None:
        for client in (self._holder, self._by_header.client, self._by_sum.client):
            client.close()
        self._cluster.__exit__(None, None, None)

    def measure(self, page_bytes: int, batch: int, turns: int) -> RdmaFigures:
        work = self._set(page_bytes)
        batch = min(batch, len(work.keys))
        # Batches small enough that each of the many threads gets one.
        shared = max(1, min(batch, len(work.keys) // MANY_THREADS))
        sides = (self._by_header, self._by_sum)
        for side in sides:  # connects, registers memory, and fills the location cache
            side.lookups = side.control_events = side.retried = side.misses = 0
            side.region.view[: work.size_bytes] = bytes(work.size_bytes)
            _get_all(side, work, shared, MANY_THREADS)
            _get_all(side, work, batch, 1)
        wrong = sum(self._wrong_pages(side, work) for side in sides)

        bare_reads = BareReads(
            self._wires,
            self._source.view[: work.size_bytes],
            self._by_header.region.view[: work.size_bytes],
            page_bytes,
            _QUEUE_PAIRS,
        )
        bare_reads.gbps()  # warms up the connections
        wire: list[float] = []
        bare: list[float] = []
        header: list[float] = []
        summed: list[float] = []
        few: list[float] = []
        many: list[float] = []
        for _ in range(turns):
            if perftest.available():
                wire.append(self._wire_gbps(page_bytes))
            bare.append(bare_reads.gbps())
            header.append(self._rate(self._by_header, work, batch, 1))
            summed.append(self._rate(self._by_sum, work, batch, 1))
            few.append(self._rate(self._by_header, work, shared, FEW_THREADS))
            many.append(self._rate(self._by_header, work, shared, MANY_THREADS))
        del bare_reads  # frees its registrations too
        wrong += sum(self._wrong_pages(side, work) for side in sides)
        self._holder.clear()
        median = statistics.median
        return RdmaFigures(
            page_bytes=page_bytes,
            batch=batch,
            wire_gbps=median(wire) if wire else None,
            bare_gbps=median(bare),
            header_gbps=median(header),
            checksum_gbps=median(summed),
            header_share=_share(header, wire),
            checksum_share=_share(summed, wire),
            header_of_bare=_share(header, bare) or 0.0,
            checksum_of_bare=_share(summed, bare) or 0.0,
            few_threads_gbps=median(few),
            many_threads_gbps=median(many),
            many_of_few=_share(many, few) or 0.0,
            lookups=sum(side.lookups for side in sides),
            control_events=sum(side.control_events for side in sides),
            retried=sum(side.retried for side in sides),
            misses=sum(side.misses for side in sides),
            wrong_pages=wrong,
        )

    def _set(self, page_bytes: int) -> Work:
        count = self.size_bytes // page_bytes
        work = Work(page_bytes, key_names(f"rdma/{page_bytes}", count))
        work.offsets = list(range(0, count * page_bytes, page_bytes))
        fill(self._source.view[: work.size_bytes], page_bytes)
        for keys, offsets in work.batches(128):
            if not all(self._holder.batch_set(keys, self._source, offsets, page_bytes)):
                raise RuntimeError("the holder did not take all pages")
        return work

    def _wire_gbps(self, page_bytes: int) -> float:
        """The better of polling and sleeping: on a single CPU, polling takes time from the wire."""
        reads = max(8, self.size_bytes // page_bytes // _QUEUE_PAIRS // len(self._wires))
        return max(
            perftest.read_bandwidth(self._wires, page_bytes, _QUEUE_PAIRS, reads, sleeping=sleeping)
            for sleeping in (False, True)
        )

    def _rate(self, side: Side, work: Work, batch: int, threads: int) -> float:
        """GB/s of gets. The exists before them is not timed."""
        found = side.client.batch_exists(work.keys)
        side.misses += len(work.keys) - found
        side.region.view[: work.size_bytes] = bytes(work.size_bytes)
        before = side.counters()
        took = _get_all(side, work, batch, threads)
        after = side.counters()
        side.lookups += after[0] - before[0]
        side.control_events += after[1] - before[1]
        side.retried += after[2] - before[2]
        return work.size_bytes / 1e9 / took

    def _wrong_pages(self, side: Side, work: Work) -> int:
        source, dest, size = self._source.view, side.region.view, work.page_bytes
        return sum(source[at : at + size] != dest[at : at + size] for at in work.offsets)


def _get_all(side: Side, work: Work, batch: int, threads: int) -> float:
    """Seconds until `threads` threads have fetched all pages, `batch` at a time."""
    batches = work.batches(batch)
    turn = itertools.count()
    start = threading.Barrier(threads + 1)
    missed: list[int] = []

    def get() -> None:
        side.client.stats()  # opens this thread's connection before the clock starts
        start.wait()
        while (mine := next(turn)) < len(batches):
            keys, offsets = batches[mine]
            answers = side.client.batch_get(keys, side.region, offsets, work.page_bytes)
            missed.append(sum(not answer for answer in answers))

    workers = [threading.Thread(target=get) for _ in range(threads)]
    for worker in workers:
        worker.start()
    start.wait()
    begin = time.perf_counter()
    for worker in workers:
        worker.join()
    took = time.perf_counter() - begin
    side.misses += sum(missed)
    return took


def _share(rates: Sequence[float], of: Sequence[float]) -> float | None:
    return statistics.median(a / b for a, b in zip(rates, of, strict=True)) if of else None


def _port(rail: dict[str, Any]) -> perftest.Port:
    return perftest.Port(rail["device"], rail["gid_index"], rail["port"])
