"""The benchmark's tables: every figure beside its limit."""

from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table

from peercache_bench.directory import DirectoryFigures
from peercache_bench.rdma import FEW_THREADS, MANY_THREADS, RdmaFigures
from peercache_bench.transfers import Latencies, PageFigures

_PIPE_COLUMNS = 200


def report_console(*, stderr: bool) -> Console:
    """For wide tables. Files and pipes have no width, so lines are not cut to 80 columns."""
    console = Console(stderr=stderr)
    return console if console.is_terminal else Console(stderr=stderr, width=_PIPE_COLUMNS)


def size_label(size_bytes: int) -> str:
    return f"{size_bytes >> 20} MiB" if size_bytes >= 1 << 20 else f"{size_bytes >> 10} KiB"


def _ratio(value: float, limit: float) -> str:
    return f"{value:.2f} ({100 * value / limit:.0f} %)"


def _memcpy_of(limits: dict[str, float], page_bytes: int) -> float:
    label = f"{page_bytes >> 20}m" if page_bytes >= 1 << 20 else f"{page_bytes >> 10}k"
    return limits.get(f"memcpy_{label}", limits["memcpy_1m"])


def print_pages(
    console: Console, figures: list[PageFigures], memory: dict[str, float], wire_gbps: float
) -> None:
    table = Table(
        title="Pages, GB/s (share of memcpy for set and local get, of raw loopback TCP for remote)"
    )
    for column in (
        "page",
        "batch",
        "set",
        "local get",
        "remote get",
        "exists + get",
        "set CPU s/GB",
        "get CPU s/GB",
        "misses",
        "wrong",
    ):
        table.add_column(column, justify="right")
    for one in figures:
        copy = _memcpy_of(memory, one.page_bytes)
        table.add_row(
            size_label(one.page_bytes),
            str(one.batch),
            _ratio(one.set_gbps, copy),
            _ratio(one.local_get_gbps, copy),
            _ratio(one.remote_get_gbps, wire_gbps),
            _ratio(one.remote_exists_get_gbps, wire_gbps),
            f"{one.set_cpu_s_per_gb:.2f}",
            f"{one.remote_get_cpu_s_per_gb:.2f}",
            str(one.misses),
            str(one.wrong_pages),
        )
    console.print(table)


def print_limits(
    console: Console, memory: dict[str, float], wire: dict[int, float], round_trip_us: float
) -> None:
    table = Table(title="Limits of this machine, same run")
    table.add_column("what")
    table.add_column("value", justify="right")
    for name, gbps in memory.items():
        table.add_row(name.replace("_", " "), f"{gbps:.1f} GB/s")
    for streams, gbps in wire.items():
        table.add_row(f"loopback TCP, {streams} stream(s)", f"{gbps:.2f} GB/s")
    table.add_row("Unix socket round trip", f"{round_trip_us:.0f} us")
    console.print(table)


def print_rest(
    console: Console,
    latencies: Latencies,
    directory: DirectoryFigures | None,
    idle_core: float,
    idle_mb: float,
) -> None:
    table = Table(title="Latency, directory, rest")
    table.add_column("what")
    table.add_column("value", justify="right")
    for what, (median, tail) in {
        "exists of 128 keys, local (p50 / p99)": latencies.exists_local_us,
        "exists of 128 keys, remote": latencies.exists_remote_us,
        "get of one 128 KiB page after exists, remote": latencies.get_after_exists_us,
    }.items():
        table.add_row(what, f"{median:.0f} / {tail:.0f} us")
    table.add_row("directory RPCs of those gets", str(latencies.lookups_of_gets_after_exists))
    if directory:
        table.add_row(
            f"directory, {directory.entries / 1e6:g} M records",
            f"{directory.bytes_total / 1e6:.0f} MB"
            f" ({directory.bytes_total / directory.entries:.1f} bytes each)",
        )
        table.add_row("insert of 1 M records", f"{directory.insert_ms_per_million:.0f} ms")
        table.add_row("lookup in batches of 128", f"{directory.lookup_ns:.0f} ns")
        table.add_row(
            "dropping a node with 1 M records", f"{directory.drop_ms_per_million_held:.3f} ms"
        )
    table.add_row("idle daemon", f"{100 * idle_core:.2f} % of a core")
    table.add_row("memory besides the pool", f"{idle_mb:.0f} MB")
    console.print(table)


def as_document(
    figures: list[PageFigures],
    latencies: Latencies,
    directory: DirectoryFigures | None,
    memory: dict[str, float],
    wire: dict[int, float],
    round_trip_us: float,
    idle_core: float,
    idle_mb: float,
) -> dict[str, Any]:
    return {
        "limits": {
            "memory_gbps": memory,
            "loopback_tcp_gbps": wire,
            "unix_round_trip_us": round_trip_us,
        },
        "pages": [asdict(one) for one in figures],
        "latencies": asdict(latencies),
        "directory": asdict(directory) if directory else None,
        "idle": {"core": idle_core, "resident_mb": idle_mb},
    }


def print_rdma(console: Console, figures: list[RdmaFigures]) -> None:
    table = Table(
        title="Gets over RDMA, GB/s (share of ib_read_bw, of bare READs, in the same turn)"
    )
    for column in (
        "page",
        "batch",
        "ib_read_bw",
        "bare READs",
        "headers checked",
        "sums, too",
        f"{FEW_THREADS} threads",
        f"{MANY_THREADS} threads (of {FEW_THREADS})",
        "lookups",
        "events",
        "retried",
        "misses",
        "wrong",
    ):
        table.add_column(column, justify="right")
    for one in figures:
        table.add_row(
            size_label(one.page_bytes),
            str(one.batch),
            "-" if one.wire_gbps is None else f"{one.wire_gbps:.3f}",
            f"{one.bare_gbps:.3f}",
            _shared(one.header_gbps, one.header_share, one.header_of_bare),
            _shared(one.checksum_gbps, one.checksum_share, one.checksum_of_bare),
            f"{one.few_threads_gbps:.3f}",
            _shared(one.many_threads_gbps, one.many_of_few),
            str(one.lookups),
            str(one.control_events),
            str(one.retried),
            str(one.misses),
            str(one.wrong_pages),
        )
    console.print(table)
    console.print(
        "ib_read_bw reads one page again and again, out of the caches; bare READs read as much "
        "memory as the gets. Lookups and events: directory RPCs and calls into Python by all gets "
        "that followed an exists."
    )
    if any(one.wire_gbps is None for one in figures):
        console.print("No shares of it: ib_read_bw is missing (Debian package perftest).")


def _shared(gbps: float, *shares: float | None) -> str:
    of = " / ".join("-" if share is None else f"{100 * share:.0f}" for share in shares)
    return f"{gbps:.3f} ({of} %)"
