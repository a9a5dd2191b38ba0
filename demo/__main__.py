"""Three daemons with two workers each replay requests, and every byte is checked: `make demo`."""

import asyncio
import contextlib
import itertools
import json
import math
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from harness.cluster import Cluster, Daemon
from harness.content import PAGE_BYTES_MAX
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from demo import replay as running
from demo import report
from demo.replay import Replay, WorkerDied, WorkerOptions, WorkerProcess
from demo.scenario import KillOneDaemon, Scenario, WipeAll
from demo.slots import slot_bytes
from demo.trace import read_trace
from demo.workload import Conversations, Documents, Request
from peercache_bench.daemons import ClusterError
from peercache_bench.report import report_console
from peercached.sizing.trace import TraceError

_DEFAULT_REQUESTS = 5000
_QUESTIONS_EACH = 5
_TRACE_SECONDS = 60.0
# Several times faster than the daemon's default, so that a killed daemon leaves the view, and joins
# it again, within the replay.
_HEARTBEAT_S = 0.25
_TTL_HEARTBEATS = 6
_START_S = 60.0
_SPILL_BYTES_PER_S = 1 << 30


@dataclass(frozen=True)
class Options:
    requests: int | None
    page_kib: int
    pool_mib: int
    disk_mib: int
    seed: int
    trace: Path | None
    documents: int | None
    kill: bool
    cold: str
    faults: str
    protocol: str
    devices: str
    heartbeat_s: float
    nodes: int
    writers: int | None
    set_all: bool
    rate: float | None


@dataclass(frozen=True)
class Workload:
    name: str
    requests: Iterator[Request]
    count: int
    seconds_max: float | None = None
    """Replay as many of them as this allows."""


@click.command()
@click.option(
    "--requests",
    type=click.IntRange(min=1),
    help=f"How many to replay. Default: {_DEFAULT_REQUESTS}, or of a trace as many as finish "
    "within a minute.",
)
@click.option(
    "--trace",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Replay this trace (Mooncake's format, .jsonl or .jsonl.gz) instead of made-up "
    "conversations.",
)
@click.option(
    "--documents",
    type=click.IntRange(min=1),
    metavar="N",
    help="Ask about N long documents, once each and then again at random, instead of made-up "
    f"conversations. Default of --requests: {_QUESTIONS_EACH} for each.",
)
@click.option("--kill", is_flag=True, help="Kill -9 one daemon in the middle; it returns later.")
@click.option(
    "--cold",
    default="",
    metavar="URL",
    help="Keep pages in this object store, such as file:///tmp/x. In the middle all daemons are "
    "killed and wiped. A second run finds the pages of the first.",
)
@click.option("--faults", default="", metavar="PLAN", help="For the daemons: corrupt=0.01,seed=7")
@click.option(
    "--protocol",
    type=click.Choice(["auto", "rdma", "tcp"]),
    default="auto",
    show_default=True,
    help="How pages travel between the daemons.",
)
@click.option(
    "--devices",
    default="",
    metavar="NAMES",
    help="RDMA devices, with commas, dealt out to the daemons in turn: rxe0,rxe1,rxe2",
)
@click.option(
    "--heartbeat-s",
    type=click.FloatRange(0.05, 10),
    default=_HEARTBEAT_S,
    show_default=True,
    help="Of the daemons. Longer on a machine so busy that members come and go.",
)
@click.option(
    "--page-kib",
    type=click.IntRange(1, PAGE_BYTES_MAX >> 10),
    default=64,
    show_default=True,
    help="Size of a page, which holds one block.",
)
@click.option(
    "--pool-mib",
    type=click.IntRange(min=1),
    default=64,
    show_default=True,
    help="Pool of each daemon.",
)
@click.option(
    "--disk",
    "disk_mib",
    type=click.IntRange(min=0),
    default=0,
    metavar="MIB",
    help="Disk tier of each daemon, in a temporary folder; 0: none.",
)
@click.option("--nodes", type=click.IntRange(2, 16), default=3, show_default=True, help="Daemons.")
@click.option(
    "--writers",
    type=click.IntRange(min=1),
    help="Only so many of the daemons have workers; the others lend their memory. Replays twice, "
    "first without spill.",
)
@click.option(
    "--set-all",
    is_flag=True,
    help="Workers also set the pages that they have found, like an engine that does not ask first.",
)
@click.option(
    "--rate",
    type=click.FloatRange(min=0, min_open=True),
    metavar="N",
    help="Requests per second at most. Default: as fast as they go.",
)
@click.option("--seed", default=1, show_default=True, help="Of conversations and spreading.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document, nothing else.")
def main(as_json: bool, **values: Any) -> None:
    """Daemons share KV pages while a workload is replayed and every byte is checked.

    Ends with 1 if any byte was wrong.
    """
    options = Options(**values)
    console = report_console(stderr=as_json)
    try:
        more: dict[str, int] = {}
        if options.documents and (options.trace or options.kill):
            raise click.UsageError("--documents: give it without --trace and --kill")
        if options.cold and (options.documents or options.kill):
            raise click.UsageError("--cold: give it without --documents and --kill")
        if options.writers is not None:
            if options.writers > options.nodes:
                raise click.UsageError(f"--writers: there are only {options.nodes} daemons")
            without = asyncio.run(_run(options, console, {"spill-bytes-per-s": 0}))
            rate = without["hit_rate"]
            console.print(
                f"Without spill, {rate:.1%} of the pages hit. The same again with spill: daemons "
                "without workers take the pages that others would evict."
            )
            more = {"spill-bytes-per-s": _SPILL_BYTES_PER_S}
        summary = asyncio.run(_run(options, console, more))
    except (ClusterError, TraceError, WorkerDied) as problem:
        raise click.ClickException(str(problem)) from problem
    if as_json:
        click.echo(json.dumps(summary, indent=2))
    else:
        console.print(
            "The result. A hit is a page that a prefill worker found instead of computing it."
        )
        report.show(summary, console)
    sys.exit(0 if report.succeeded(summary) else 1)


async def _run(options: Options, console: Console, more: Mapping[str, int]) -> dict[str, Any]:
    workload = _workload(options)
    page_bytes = options.page_kib << 10
    daemon_options: dict[str, str | int | float] = {
        "pool-size": f"{options.pool_mib}MiB",
        "heartbeat-interval-s": options.heartbeat_s,
        "member-ttl-s": options.heartbeat_s * _TTL_HEARTBEATS,
        "protocol": options.protocol,
        **more,
    }
    if options.cold:
        daemon_options["cold-store"] = options.cold
    if options.faults:
        daemon_options["faults"] = options.faults
    each = [{"device-names": names} for names in _dealt_out(options.devices, options.nodes)]
    with Cluster(options.nodes, options=daemon_options, each=each) as cluster:
        if options.disk_mib:
            for daemon in cluster.daemons:
                daemon.options |= {
                    "disk-enabled": True,
                    "disk-path": str(cluster.folder / f"{daemon.node_id}.disk"),
                    "disk-size": f"{options.disk_mib}MiB",
                }
        disk = f" and {options.disk_mib} MiB of disk" if options.disk_mib else ""
        console.print(
            f"Starting {options.nodes} daemons. Each has {options.pool_mib} MiB of memory{disk} "
            "for pages, and finds the pages of the others."
        )
        cluster.start(_START_S)
        nodes = ", ".join(f"{daemon.node_id} on {daemon.host}" for daemon in cluster.daemons)
        console.print(f"  members: {nodes}")
        console.print(
            f"Starting two workers on each of {options.writers or options.nodes} daemons. A "
            "prefill worker sets the pages of a prompt that it does not find. A decode worker on "
            "another node then gets the prompt's pages."
        )
        async with AsyncExitStack() as stack:
            workers = [
                [
                    await stack.enter_async_context(
                        WorkerProcess.running(
                            f"{role} on {daemon.node_id}",
                            daemon.socket_path,
                            WorkerOptions(page_bytes=page_bytes, set_all=options.set_all),
                        )
                    )
                    for daemon in cluster.daemons[: options.writers]
                ]
                for role in ("prefill", "decode")
            ]
            console.print(
                f"Replaying {workload.name}. Pages that do not fit are evicted. Every byte that a "
                "worker gets is compared with the right one."
            )
            taken, phases = await _replay(options, workload, cluster, workers, console)
        statuses = {daemon.node_id: _status(daemon) for daemon in cluster.daemons}
    a_slot = slot_bytes(page_bytes)
    return report.summarise(
        phases,
        taken,
        workload=_description(workload, len(taken)),
        page_bytes=page_bytes,
        capacity_pages=options.nodes * (options.pool_mib << 20) // a_slot,
        disk_pages=options.nodes * (options.disk_mib << 20) // a_slot,
        daemons=statuses,
    )


async def _replay(
    options: Options,
    workload: Workload,
    cluster: Cluster,
    workers: list[list[WorkerProcess]],
    console: Console,
) -> tuple[list[Request], list[running.Phase]]:
    with _progress(console) as progress:
        bar = progress.add_task("", total=1.0)
        began_s = time.monotonic()

        def over(requests: int) -> float:
            """The completed fraction of the replay, 0 to 1."""
            by_count = requests / workload.count
            if workload.seconds_max is None:
                return by_count
            return max(by_count, (time.monotonic() - began_s) / workload.seconds_max)

        def on_progress(now: running.Progress) -> None:
            progress.update(
                bar,
                completed=over(now.requests),
                description=f"{now.requests:,} requests, {now.hit_rate:.1%} hits, "
                f"{now.set_bytes / 1e9:.1f} GB set, {now.got_bytes / 1e9:.1f} GB got, "
                f"{now.wrong_pages} wrong",
            )

        prefill, decode = workers
        replay = Replay(prefill, decode, seed=options.seed, on_progress=on_progress)
        scenario: Scenario | None = None
        if options.kill:
            scenario = KillOneDaemon(cluster, workers, replay, progress.console.print)
        elif options.cold:
            scenario = WipeAll(cluster, workers, replay, progress.console.print)

        async def before(number: int) -> None:
            if options.documents and number in (0, options.documents):
                replay.begin_phase("first questions" if number == 0 else "later questions")
            if scenario is not None:
                await scenario.advance(over(number))

        await replay.run(
            workload.requests,
            seconds_max=workload.seconds_max,
            per_s=options.rate or math.inf,
            before=before,
        )
        if scenario is not None:
            await scenario.finish()
        return replay.taken, replay.phases


def _workload(options: Options) -> Workload:
    if options.documents is not None:
        documents = Documents(options.documents, options.seed)
        count = options.requests or _QUESTIONS_EACH * options.documents
        name = f"{options.documents} documents of {documents.document_blocks} pages"
        return Workload(name, itertools.islice(documents.requests(), count), count)
    if options.trace is None:
        count = options.requests or _DEFAULT_REQUESTS
        made_up = itertools.islice(Conversations(seed=options.seed).requests(), count)
        return Workload("made-up conversations", made_up, count)
    requests = list(itertools.islice(read_trace(options.trace), options.requests))
    if not requests:
        raise TraceError(f"{options.trace} holds no requests: give a trace in Mooncake's format")
    return Workload(
        options.trace.name,
        iter(requests),
        len(requests),
        None if options.requests else _TRACE_SECONDS,
    )


def _description(workload: Workload, taken: int) -> str:
    if taken == workload.count:
        return f"{workload.name}: {taken:,} requests"
    return (
        f"{workload.name}: the first {taken:,} of {workload.count:,} requests, as many as "
        f"{workload.seconds_max:.0f} s allowed (choose with --requests)"
    )


def _dealt_out(devices: str, nodes: int) -> list[str]:
    """The comma-separated devices of each daemon; an empty list without devices. If there are fewer
    devices than daemons, daemons share them."""
    names = [name.strip() for name in devices.split(",") if name.strip()]
    return [
        ",".join(names[place::nodes] or [names[place % len(names)]])
        for place in range(nodes if names else 0)
    ]


def _status(daemon: Daemon) -> dict[str, Any] | None:
    return daemon.status() if daemon.alive else None


@contextlib.contextmanager
def _progress(console: Console) -> Iterator[Progress]:
    columns = SpinnerColumn(), BarColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
    with Progress(*columns, console=console, transient=True) as progress:
        yield progress


if __name__ == "__main__":
    main()
