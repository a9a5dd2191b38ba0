"""Pages set on one daemon and read on both, timed batch by batch and compared byte by byte."""

import hashlib
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from peercache_bench.daemons import Cluster
from peercache_client import Client, Region

_FILL_BLOCK_BYTES = 1 << 20
_TIMEOUT_S = 30.0


@dataclass
class PageFigures:
    """One page size and batch size. GB = 10^9 bytes."""

    page_bytes: int
    batch: int
    set_gbps: float
    local_get_gbps: float
    remote_get_gbps: float
    remote_exists_get_gbps: float
    set_cpu_s_per_gb: float
    remote_get_cpu_s_per_gb: float
    misses: int
    wrong_pages: int


@dataclass
class Latencies:
    """Microseconds, median and 99th percentile."""

    exists_local_us: tuple[float, float]
    exists_remote_us: tuple[float, float]
    get_after_exists_us: tuple[float, float]
    lookups_of_gets_after_exists: int


@dataclass
class Pair:
    """Two daemons, each with a worker's client and buffer."""

    cluster: Cluster
    clients: list[Client]
    regions: list[Region]
    size_bytes: int
    pids: list[int] = field(default_factory=list)

    def cpu_s(self) -> float:
        """CPU seconds of the daemons and of this process."""
        others = sum(time.clock_gettime(((~pid) << 3) | 2) for pid in self.pids)
        return others + time.process_time()

    def clear(self) -> None:
        self.clients[0].clear()


def open_pair(cluster: Cluster, size_bytes: int) -> Pair:
    clients = [
        Client(str(daemon.socket_path), namespace="bench", timeout_s=_TIMEOUT_S)
        for daemon in cluster.daemons
    ]
    regions = [client.alloc(size_bytes) for client in clients]
    return Pair(cluster, clients, regions, size_bytes, [d.pid for d in cluster.daemons])


def fill(view: memoryview, seed: int) -> None:
    """Fills all blocks with the same random bytes, and stamps every 4 KiB so that all differ."""
    block = bytearray(hashlib.shake_128(seed.to_bytes(8, "little")).digest(_FILL_BLOCK_BYTES))
    for at in range(0, len(view), _FILL_BLOCK_BYTES):
        for stamp in range(0, _FILL_BLOCK_BYTES, 4096):
            block[stamp : stamp + 8] = (at + stamp).to_bytes(8, "little")
        view[at : at + _FILL_BLOCK_BYTES] = block[: len(view) - at]


def key_names(label: str, count: int) -> list[str]:
    return [hashlib.sha256(f"{label}/{i}".encode()).hexdigest() for i in range(count)]


def _timed(body: Callable[[], object]) -> float:
    begin = time.perf_counter()
    body()
    return time.perf_counter() - begin


def _spread(samples: list[float]) -> tuple[float, float]:
    samples.sort()
    return samples[len(samples) // 2] * 1e6, samples[int(len(samples) * 0.99)] * 1e6


def measure_pages(pair: Pair, page_bytes: int, batch: int, seed: int) -> PageFigures:
    """Sets the whole buffer at node a, then gets it there and at node b."""
    batch = min(batch, pair.size_bytes // page_bytes)
    count = pair.size_bytes // page_bytes // batch * batch
    total = count * page_bytes
    producer, consumer = pair.clients
    source, dest = pair.regions
    fill(source.view[:total], seed)
    keys = key_names(f"{page_bytes}/{batch}/{seed}", count)
    work = [
        (keys[i : i + batch], list(range(i * page_bytes, (i + batch) * page_bytes, page_bytes)))
        for i in range(0, count, batch)
    ]
    misses = 0

    cpu = pair.cpu_s()
    set_s = 0.0
    for names, offsets in work:
        begin = time.perf_counter()
        answers = producer.batch_set(names, source, offsets, page_bytes)
        set_s += time.perf_counter() - begin
        misses += sum(not answer for answer in answers)
    set_cpu = pair.cpu_s() - cpu

    # Read back over the source: it already holds the same bytes.
    local_s = 0.0
    for names, offsets in work:
        begin = time.perf_counter()
        answers = producer.batch_get(names, source, offsets, page_bytes)
        local_s += time.perf_counter() - begin
        misses += sum(not answer for answer in answers)

    dest.view[:total] = bytes(total)
    exists_s = remote_s = 0.0
    cpu = pair.cpu_s()
    for names, offsets in work:
        begin = time.perf_counter()
        found = consumer.batch_exists(names)
        middle = time.perf_counter()
        answers = consumer.batch_get(names, dest, offsets, page_bytes)
        remote_s += time.perf_counter() - middle
        exists_s += middle - begin
        misses += sum(not answer for answer in answers) + batch - found
    remote_cpu = pair.cpu_s() - cpu

    wrong = sum(
        source.view[at : at + page_bytes] != dest.view[at : at + page_bytes]
        for at in range(0, total, page_bytes)
    )
    gigabytes = total / 1e9
    return PageFigures(
        page_bytes,
        batch,
        gigabytes / set_s,
        gigabytes / local_s,
        gigabytes / remote_s,
        gigabytes / (remote_s + exists_s),
        set_cpu / gigabytes,
        remote_cpu / gigabytes,
        misses,
        wrong,
    )


def measure_latencies(pair: Pair, page_bytes: int, rounds: int = 400) -> Latencies:
    """Latencies of `exists` for a batch of 128 keys, and of single gets right after it."""
    producer, consumer = pair.clients
    source, dest = pair.regions
    count = min(128 * 8, pair.size_bytes // page_bytes)
    keys = key_names("latency", count)
    offsets = list(range(0, count * page_bytes, page_bytes))
    for i in range(0, count, 128):
        producer.batch_set(keys[i : i + 128], source, offsets[i : i + 128], page_bytes)

    def exists(client: Client) -> tuple[float, float]:
        chosen = keys[:128]
        for _ in range(20):
            client.batch_exists(chosen)
        return _spread([_timed(partial(client.batch_exists, chosen)) for _ in range(rounds)])

    def operations() -> dict[str, int]:
        counters: dict[str, int] = consumer.stats()["daemon"]["operations"]
        return counters

    # New keys in each call, so that the location cache answers none of them.
    fresh = [keys[i : i + 128] for i in range(0, count, 128)]
    remote = _spread([_timed(partial(consumer.batch_exists, chosen)) for chosen in fresh])
    before = operations()["lookups_asked"]
    singles = [
        _timed(partial(consumer.batch_get, [keys[k]], dest, [offsets[k]], page_bytes))
        for k in (i % count for i in range(rounds))
    ]
    lookups = operations()["lookups_asked"] - before
    return Latencies(exists(producer), remote, _spread(singles), lookups)


def idle(pair: Pair, seconds: float = 3.0) -> tuple[float, float]:
    """(share of a core, resident MB without the pool) of the second daemon while idle."""
    pid = pair.pids[1]
    clock = ((~pid) << 3) | 2
    samples: list[float] = []
    for _ in range(3):
        before = time.clock_gettime(clock)
        time.sleep(seconds / 3)
        samples.append((time.clock_gettime(clock) - before) / (seconds / 3))
    anonymous_kb = 0
    with Path(f"/proc/{pid}/status").open(encoding="ascii") as status:
        for line in status:
            if line.startswith(("RssAnon:", "RssFile:")):
                anonymous_kb += int(line.split()[1])
    return statistics.median(samples), anonymous_kb / 1000
