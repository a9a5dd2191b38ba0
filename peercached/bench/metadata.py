"""LMCache's published metadata experiment on our shard: 100 instances of 1 M chunks each.

    python -m peercached.bench.metadata [--instances N] [--chunks N] [--json]

One process keeps what all instances have (LMCache pull request 2043): one instance reports all its
chunks, one key is looked up, one instance goes. Theirs are Python objects on their machine; so the
core of their adopted design, a set of hashes per instance, is timed here as well. CPU time is shown
beside the wall clock, which other work on the machine lengthens.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from array import array
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from peercached.bench.directory import rows_of_random_pages

_LOOKUP_KEYS = 128
_LOOKUP_ROUNDS = 2000

# (full report ms, memory MB, lookup ms, deregister ms) at 100 x 1 M: the lower of the two tables
# that the pull request has, per figure.
PUBLISHED = {
    "LMCache S0 (key -> instances)": (1048.14, 19_720, 5.6e-5, 26_872.8),
    "LMCache S1 (registry tree, adopted)": (49.19, 5_869.63, 0.0082, 8.27),
}


@dataclass
class MetadataFigures:
    instances: int
    chunks: int  # of each
    entries: int
    memory_bytes: int
    full_report_ms: float  # wall clock; median over the instances
    full_report_cpu_ms: float
    lookup_cold_ns: float  # per key, in batches of 128: other keys each time
    lookup_hot_ns: float  # the same keys again and again, as theirs are measured
    deregister_ms: float  # until the instance's chunks are found no more
    sweep_cpu_ms: float  # of giving their memory back, afterwards and in pieces
    set_report_ms: float  # 1 M hashes into a Python set, here
    set_lookup_hot_ns: float  # of one key in one such set per instance, until it is found


def measure(instances: int, chunks: int, told: Callable[[str], None]) -> MetadataFigures:
    """MemoryError and nothing measured if the table does not fit."""
    from peercached import _native  # here: peercachectl works where it cannot be loaded

    table = _native.ShardTable(2 * instances * chunks)
    wall, cpu = [], []
    digests = b""
    for instance in range(1, instances + 1):
        table.add_holder(instance)
        digests, packed = rows_of_random_pages(chunks)
        wall_at, cpu_at = time.perf_counter(), time.process_time()
        table.apply(instance, packed)
        cpu.append(time.process_time() - cpu_at)
        wall.append(time.perf_counter() - wall_at)
        if instance % 10 == 0:
            told(f"{instance} of {instances} instances")
    stats = table.stats()
    if stats["full"]:
        raise AssertionError(f"{stats['full']} records found no room")

    cold_ns = _lookup_ns(table.lookup, digests, _LOOKUP_ROUNDS)
    hot_ns = _lookup_ns(table.lookup, digests[: 16 * _LOOKUP_KEYS], _LOOKUP_ROUNDS)

    begin = time.perf_counter()
    table.drop_holder(instances)
    deregister_s = time.perf_counter() - begin
    if table.lookup(digests[: 16 * _LOOKUP_KEYS]):
        raise AssertionError("chunks of an instance that is gone were found")
    begin = time.process_time()
    while table.sweep(4096):
        pass
    sweep_s = time.process_time() - begin
    set_report_s, set_lookup_ns = _python_sets(instances, chunks)
    return MetadataFigures(
        instances,
        chunks,
        stats["entries"],
        stats["bytes"],
        1e3 * statistics.median(wall),
        1e3 * statistics.median(cpu),
        cold_ns,
        hot_ns,
        1e3 * deregister_s,
        1e3 * sweep_s,
        1e3 * set_report_s,
        set_lookup_ns,
    )


def _lookup_ns(lookup: Callable[[bytes], bytes], digests: bytes, rounds: int) -> float:
    step = 16 * _LOOKUP_KEYS
    batches = [digests[at : at + step] for at in range(0, len(digests) - step + 1, step)]
    begin = time.process_time()
    for turn in range(rounds):
        lookup(batches[turn % len(batches)])
    return (time.process_time() - begin) / rounds / _LOOKUP_KEYS * 1e9


def _python_sets(instances: int, chunks: int) -> tuple[float, float]:
    """(CPU seconds to fill one, CPU ns to find the one of `instances` that has a key)"""
    keys = array("Q", os.urandom(8 * chunks)).tolist()
    begin = time.process_time()
    filled = set(keys)
    report_s = time.process_time() - begin
    others: list[set[int]] = [set(keys[:1000]) for _ in range(instances - 1)]
    sets = [*others, filled]
    key = keys[-1]
    begin = time.process_time()
    for _ in range(1000):
        next(one for one in sets if key in one)
    return report_s, (time.process_time() - begin) / 1000 * 1e9


def _print(figures: MetadataFigures) -> None:
    from peercached.cli.output import print_table

    ours = (
        f"{figures.full_report_cpu_ms:.1f} CPU, {figures.full_report_ms:.1f} wall",
        f"{figures.memory_bytes / 1e6:,.0f}",
        f"{figures.lookup_cold_ns / 1e6:.6f} cold, {figures.lookup_hot_ns / 1e6:.6f} hot",
        f"{figures.deregister_ms:.4f}",
    )
    here = (f"{figures.set_report_ms:.1f} CPU", "", f"{figures.set_lookup_hot_ns / 1e6:.6f} hot")
    rows: list[tuple[Any, ...]] = [("peercached, one shard", *ours)]
    rows.append(("S1's sets of hashes, here", *here, ""))
    rows += [(name, *values) for name, values in PUBLISHED.items()]
    print_table(
        ["design", ">full report ms", ">memory MB", ">lookup of a key ms", ">deregister ms"], rows
    )
    print(
        f"{figures.instances} instances x {figures.chunks:,} chunks: {figures.entries:,} records, "
        f"{figures.memory_bytes / figures.entries:.1f} bytes each; sweep of a gone instance "
        f"{figures.sweep_cpu_ms:,.0f} CPU ms in the background"
    )


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
