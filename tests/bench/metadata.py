"""LMCache's published metadata experiment on our shard: 100 instances of 1 M chunks each.

    make bench-metadata ARGS="[--instances N] [--chunks N] [--json]"

One process keeps the chunks of all instances (LMCache pull request 2043). One instance reports all
its chunks, one key is looked up, and one instance leaves.

LMCache's figures are for Python objects on another machine. So we also run the core of its designs
here, afterwards: S1, a set of hashes per instance, at the same size, and S0's dictionary for its
lookup. We show CPU time beside wall time, because other work on the machine lengthens the latter.
Every other instance reports in halves, from two threads at once, because the shard accepts
concurrent updates. Before each report we touch and free some memory. Otherwise the host of a
virtual machine may take back free memory, and getting it again costs ten times a page fault.
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import statistics
import sys
import time
import timeit
from array import array
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from peercache_bench.directory import rows_of_random_pages
from peercached import _native
from peercached.cli.output import print_table
from peercached.directory.layout import ROW_BYTES

_LOOKUP_KEYS = 128
_LOOKUP_ROUNDS = 2000
_SWEEP_RECORDS = 32 * 1024  # as in the engine

_WARM_BYTES = 256 << 20  # more than any report needs

# (full report ms, memory MB, lookup ms, deregister ms) at 100 x 1 M. Each figure is the lower one
# of the pull request's two tables.
PUBLISHED = {
    "LMCache S0 (key -> instances)": (1048.14, 19_720, 5.6e-5, 26_872.8),
    "LMCache S1 (registry tree, adopted)": (49.19, 5_869.63, 0.0082, 8.27),
    "LMCache S2 (reverse index)": (5_258, 19_720, 6e-5, 2_425),
}


@dataclass
class MetadataFigures:
    instances: int
    chunks: int  # per instance
    entries: int
    memory_bytes: int
    full_report: ReportFigures
    full_report_in_halves: ReportFigures | None  # of the even instances, by two threads at once
    room_cpu_ms: float  # CPU time of making room for later records, in pieces; median
    lookup_cold_ns: float  # per key, in batches of 128 keys that differ each time
    lookup_hot_ns: float  # per key, always the same batch
    lookup_alone_ns: float  # one key, hot, called from Python; mostly the call itself
    deregister_ms: float  # until lookups no longer find the instance's chunks
    sweep_cpu_ms: float  # CPU time of freeing their memory afterwards, in pieces
    sets: SetFigures
    dict_lookup_hot_ns: float  # one key in a dictionary of one instance's keys, on this machine


@dataclass
class ReportFigures:
    """One instance's report: medians over the instances."""

    wall_ms: float
    cpu_ms: float


@dataclass
class SetFigures:
    """LMCache's S1, reduced to its core, on this machine: a set of hashes per instance."""

    full_report: ReportFigures  # adding one instance's hashes to its set
    memory_bytes: int
    lookup_hot_ns: float  # until the set that has the key is found: the last one
    deregister_ms: float


def measure(instances: int, chunks: int, told: Callable[[str], None]) -> MetadataFigures:
    """Raises MemoryError, with nothing measured, if the table does not fit."""
    table = _native.ShardTable(2 * instances * chunks)
    whole, halves = _Reports(), _Reports()
    room = []
    digests = b""
    two_threads = ThreadPoolExecutor(2)
    list(two_threads.map(time.sleep, 2 * [0.01]))  # starts both threads
    for instance in range(1, instances + 1):
        table.add_holder(instance)
        digests, packed = rows_of_random_pages(chunks)
        middle = chunks // 2 * ROW_BYTES
        parts = packed[:middle], packed[middle:]
        _warm_memory()
        if instance % 2:
            with whole.measured():
                table.apply(instance, packed)
        else:
            with halves.measured():
                list(two_threads.map(table.apply, 2 * [instance], parts))
        room_at = time.process_time()
        while table.sweep(_SWEEP_RECORDS):
            pass
        room.append(time.process_time() - room_at)
        if instance % 10 == 0:
            told(f"{instance} of {instances} instances")
    stats = table.stats()
    if stats["full"]:
        raise AssertionError(f"{stats['full']} records found no room")

    cold_ns = _lookup_ns(table.lookup, digests, _LOOKUP_ROUNDS)
    hot_ns = _lookup_ns(table.lookup, digests[: 16 * _LOOKUP_KEYS], _LOOKUP_ROUNDS)

    alone = partial(table.lookup, digests[:16])
    alone_s = min(timeit.repeat(alone, number=10_000, repeat=5))
    del alone

    begin = time.perf_counter()
    table.drop_holder(instances)
    deregister_s = time.perf_counter() - begin
    if table.lookup(digests[: 16 * _LOOKUP_KEYS]):
        raise AssertionError("chunks of an instance that is gone were found")
    begin = time.process_time()
    while table.sweep(_SWEEP_RECORDS):
        pass
    sweep_s = time.process_time() - begin
    del table
    told("the sets of S1")
    return MetadataFigures(
        instances,
        chunks,
        stats["entries"],
        stats["bytes"],
        whole.figures(),
        halves.figures() if instances > 1 else None,
        1e3 * statistics.median(room),
        cold_ns,
        hot_ns,
        alone_s / 10_000 * 1e9,
        1e3 * deregister_s,
        1e3 * sweep_s,
        _python_sets(instances, chunks),
        _dict_lookup_ns(chunks),
    )


def _lookup_ns(lookup: Callable[[bytes], bytes], digests: bytes, rounds: int) -> float:
    step = 16 * _LOOKUP_KEYS
    batches = [digests[at : at + step] for at in range(0, len(digests) - step + 1, step)]
    begin = time.process_time()
    for turn in range(rounds):
        lookup(batches[turn % len(batches)])
    return (time.process_time() - begin) / rounds / _LOOKUP_KEYS * 1e9


def _python_sets(instances: int, chunks: int) -> SetFigures:
    memory_before = _resident_bytes()
    sets: list[set[int]] = []
    reports = _Reports()
    keys: list[int] = []
    for _ in range(instances):
        keys = _random_keys(chunks)
        _warm_memory()
        with reports.measured():
            reported: set[int] = set()
            reported.update(keys)
        sets.append(reported)
    key = keys[-1]
    del reported, keys
    memory = _resident_bytes() - memory_before
    lookup_s = min(timeit.repeat(lambda: next(s for s in sets if key in s), number=1000, repeat=5))
    begin = time.perf_counter()
    sets.pop()
    deregister_s = time.perf_counter() - begin
    return SetFigures(reports.figures(), memory, lookup_s / 1000 * 1e9, 1e3 * deregister_s)


def _dict_lookup_ns(chunks: int) -> float:
    keys = _random_keys(chunks)
    holders = dict.fromkeys(keys, (0,))
    key = keys[-1]
    return min(timeit.repeat(lambda: holders.get(key), number=100_000, repeat=5)) / 100_000 * 1e9


def _random_keys(count: int) -> list[int]:
    return array("Q", os.urandom(8 * count)).tolist()


class _Reports:
    def __init__(self) -> None:
        self._wall_s: list[float] = []
        self._cpu_s: list[float] = []

    @contextmanager
    def measured(self) -> Iterator[None]:
        wall_at, cpu_at = time.perf_counter(), time.process_time()
        yield
        self._cpu_s.append(time.process_time() - cpu_at)
        self._wall_s.append(time.perf_counter() - wall_at)

    def figures(self) -> ReportFigures:
        return ReportFigures(
            1e3 * statistics.median(self._wall_s), 1e3 * statistics.median(self._cpu_s)
        )


def _warm_memory() -> None:
    with mmap.mmap(-1, _WARM_BYTES) as memory:
        memory[:: mmap.PAGESIZE] = bytes(_WARM_BYTES // mmap.PAGESIZE)


def _resident_bytes() -> int:
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def _print(figures: MetadataFigures) -> None:
    ours = (
        _report_text(figures.full_report),
        f"{figures.memory_bytes / 1e6:,.0f}",
        f"{figures.lookup_cold_ns / 1e6:.6f} cold, {figures.lookup_hot_ns / 1e6:.6f} hot",
        f"{figures.deregister_ms:.4f}",
    )
    sets = figures.sets
    s1_here = (
        _report_text(sets.full_report),
        f"{sets.memory_bytes / 1e6:,.0f}",
        f"{sets.lookup_hot_ns / 1e6:.6f} hot",
        f"{sets.deregister_ms:.1f}",
    )
    s0_here = ("", "", f"{figures.dict_lookup_hot_ns / 1e6:.6f} hot", "")
    rows: list[tuple[Any, ...]] = [("peercached, one shard", *ours)]
    if figures.full_report_in_halves:
        text = _report_text(figures.full_report_in_halves)
        rows.append(("  the report in halves, by two threads", text, "", "", ""))
    rows.append(("S1's sets of hashes, here", *s1_here))
    rows.append(("S0's dictionary, here", *s0_here))
    rows += [(name, *values) for name, values in PUBLISHED.items()]
    print_table(
        ["design", ">full report ms", ">memory MB", ">lookup of a key ms", ">deregister ms"], rows
    )
    print(
        f"{figures.instances} instances x {figures.chunks:,} chunks: {figures.entries:,} records, "
        f"{figures.memory_bytes / figures.entries:.1f} bytes each. Our lookups are per key in "
        f"batches of {_LOOKUP_KEYS}; a call for one takes {figures.lookup_alone_ns / 1e6:.6f} ms. "
        f"In the background {figures.room_cpu_ms:.0f} CPU ms after a report, to make room for the "
        f"next, and {figures.sweep_cpu_ms:,.0f} after an instance has gone"
    )


def _report_text(report: ReportFigures) -> str:
    return f"{report.wall_ms:.1f} wall, {report.cpu_ms:.1f} CPU"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--instances", type=int, default=100)
    parser.add_argument("--chunks", type=int, default=1_000_000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    figures = measure(options.instances, options.chunks, lambda text: print(text, file=sys.stderr))
    if options.json:
        print(json.dumps(asdict(figures)))
    else:
        _print(figures)


if __name__ == "__main__":
    main()
