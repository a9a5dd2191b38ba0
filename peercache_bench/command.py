"""`peercache-bench`: measures daemons of its own beside the machine's limits."""

import json
import statistics
from dataclasses import asdict, fields

import click
from rich.console import Console

from peercache_bench import directory as directory_bench
from peercache_bench import limits, rdma, report, transfers
from peercache_bench.daemons import Cluster
from peercached import __version__

_SIZES = {"16k": 16 << 10, "128k": 128 << 10, "1m": 1 << 20, "4m": 4 << 20}


def _median(runs: list[transfers.PageFigures]) -> transfers.PageFigures:
    """Medians, field by field. Misses and wrong pages are summed, so that none is hidden."""
    values = {}
    for field in fields(transfers.PageFigures):
        column = [getattr(run, field.name) for run in runs]
        summed = field.name in ("misses", "wrong_pages")
        values[field.name] = sum(column) if summed else statistics.median(column)
    return transfers.PageFigures(**values)


@click.command()
@click.version_option(__version__, prog_name="peercache-bench", message="%(prog)s %(version)s")
@click.option("--pages", default="16k,128k,1m,4m", show_default=True, help="page sizes")
@click.option("--batch", "batches", multiple=True, type=int, default=(32, 128), show_default=True)
@click.option("--repeats", default=3, show_default=True, help="runs per figure; medians are shown")
@click.option("--mib", default=512, show_default=True, help="bytes set and read per run, MiB")
@click.option(
    "--entries",
    type=click.IntRange(min=0),
    default=10_000_000,
    show_default=True,
    help="directory records; 0: skip",
)
@click.option("--json", "as_json", is_flag=True, help="one JSON document")
@click.option(
    "--protocol",
    type=click.Choice(["tcp", "rdma"]),
    default="tcp",
    show_default=True,
    help="rdma: READs beside ib_read_bw, and nothing else",
)
@click.option("--devices", help="with rdma: devices, the first half of them the holder's")
def main(
    pages: str,
    batches: tuple[int, ...],
    repeats: int,
    mib: int,
    entries: int,
    as_json: bool,
    protocol: str,
    devices: str | None,
) -> None:
    """Measures daemons of its own on loopback, beside what this machine can do.

    Nothing that runs is disturbed, and nothing is asserted: read the ratios. Exit code 1 if a
    page was wrong.
    """
    unknown = [name for name in pages.split(",") if name not in _SIZES]
    if unknown:
        raise click.BadParameter(
            f"{unknown[0]!r}: choose from {', '.join(_SIZES)}", param_hint="pages"
        )
    size_bytes = mib << 20
    console = report.report_console(stderr=as_json)
    if protocol == "rdma":
        if not devices:
            raise click.BadParameter(
                "name the devices: `peercachectl devices` lists them", param_hint="devices"
            )
        sizes = [_SIZES[name] for name in pages.split(",")]
        _bench_rdma(devices.split(","), sizes, batches, repeats, size_bytes, console, as_json)
        return
    memory = limits.memory_gbps(256 << 20)
    wire = limits.best_loopback_gbps(1 << 30)
    round_trip_us = limits.unix_round_trip_us()
    console.print("limits measured; starting two daemons")

    figures: list[transfers.PageFigures] = []
    with Cluster(2, options={"pool-size": 2 * size_bytes + (64 << 20)}) as cluster:
        cluster.start()
        pair = transfers.open_pair(cluster, size_bytes)
        transfers.measure_pages(pair, 1 << 20, 32, seed=0)  # first touch of memory, and connections
        pair.clear()
        for name in pages.split(","):
            for batch in batches:
                runs = []
                for repeat in range(repeats):
                    runs.append(transfers.measure_pages(pair, _SIZES[name], batch, repeat + 1))
                    pair.clear()
                figures.append(_median(runs))
                console.print(f"  {name} x {batch} measured")
        latencies = transfers.measure_latencies(pair, 128 << 10)
        pair.clear()
        idle_core, idle_mb = transfers.idle(pair)
        for client in pair.clients:
            client.close()
    table = directory_bench.measure(entries) if entries else None

    if as_json:
        click.echo(
            json.dumps(
                report.as_document(
                    figures, latencies, table, memory, wire, round_trip_us, idle_core, idle_mb
                )
            )
        )
    else:
        report.print_limits(console, memory, wire, round_trip_us)
        report.print_pages(console, figures, memory, max(wire.values()))
        report.print_rest(console, latencies, table, idle_core, idle_mb)
    if any(one.wrong_pages for one in figures):
        raise SystemExit(1)


def _bench_rdma(
    devices: list[str],
    page_sizes: list[int],
    batches: tuple[int, ...],
    turns: int,
    size_bytes: int,
    console: Console,
    as_json: bool,
) -> None:
    figures: list[rdma.RdmaFigures] = []
    console.print("starting three daemons")
    with rdma.RdmaBench(devices, size_bytes) as running:
        for page_bytes in page_sizes:
            for batch in batches:
                figures.append(running.measure(page_bytes, batch, turns))
                console.print(f"  {report.size_label(page_bytes)} x {batch} measured")
    if as_json:
        click.echo(json.dumps({"rdma": [asdict(one) for one in figures]}))
    else:
        report.print_rdma(console, figures)
    if any(one.wrong_pages for one in figures):
        raise SystemExit(1)
