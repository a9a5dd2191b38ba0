"""`peercachectl simulate`: the hit rate of pools of several sizes, for a trace of requests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from peercached.cli.exits import EXPLAINED, USAGE, Failure
from peercached.cli.number import Number, Size
from peercached.cli.output import count, duration, percent, plural, print_json, print_table, size
from peercached.error_text import error_text

_SIZES = (0.25, 0.5, 1.0, 2.0, 4.0)


@click.command("simulate", epilog=EXPLAINED)
@click.argument("trace", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--pool", "pool_bytes", type=Size(), required=True, help="Of each node, as 256GiB.")
@click.option("--nodes", type=click.IntRange(1, 1024), default=1, show_default=True)
@click.option("--model", "wanted", required=True, metavar="NAME|PATH", help="As for size.")
@click.option(
    "--kv-dtype",
    type=click.Choice(["bf16", "fp16", "fp8", "fp4"]),
    default="bf16",
    show_default=True,
)
@click.option(
    "--prefill-rate",
    type=Number(min=0, min_open=True),
    metavar="TOKENS/S",
    help="How fast the cluster computes prompts: then the time saved is printed.",
)
@click.option("--json", "as_json", is_flag=True, help="JSON, for scripts.")
def simulate(
    trace: Path,
    pool_bytes: int,
    nodes: int,
    wanted: str,
    kv_dtype: str,
    prefill_rate: float | None,
    as_json: bool,
) -> None:
    """Replays TRACE against pools of this and other sizes, and prints the hit rates.

    TRACE has requests in Mooncake's format: JSON lines with `hash_ids`, one per 512 tokens; plain
    or gzipped. Each size is simulated with the nodes sharing their pools, and with each node alone.
    Asks no daemon.
    """
    from peercached.sizing import models, simulation
    from peercached.sizing.trace import BLOCK_TOKENS, TraceError, read_trace

    try:
        model = models.find(wanted)
    except models.UnknownModel as error:
        raise Failure(str(error), USAGE) from error
    block_bytes = model.bytes_per_token(kv_dtype) * BLOCK_TOKENS
    pools: list[int | None] = [int(pool_bytes * factor) for factor in _SIZES]
    clusters = [
        simulation.Cluster(nodes, blocks_in(pool, block_bytes), shared=shared)
        for pool in [*pools, None]
        for shared in (True, False)
    ]
    try:
        requests = list(read_trace(trace))
    except (TraceError, OSError) as error:
        raise Failure(error_text(error), USAGE) from error
    simulation.replay(requests, clusters)
    rows = [
        _row(pool, shared.found, alone.found, prefill_rate)
        for pool, shared, alone in zip([*pools, None], clusters[::2], clusters[1::2], strict=True)
    ]
    if as_json:
        print_json({"requests": len(requests), "blocks": clusters[0].found.asked, "pools": rows})
        return
    click.echo(
        f"{plural(len(requests), 'request')}, {plural(clusters[0].found.asked, 'block')} of "
        f"{BLOCK_TOKENS} tokens ({size(block_bytes)} each), on {plural(nodes, 'node')}"
    )
    columns = ["pool of each node", ">hit rate", ">of it from peers", ">each node alone"]
    if prefill_rate is not None:
        columns.append(">time saved")
    print_table(columns, (_cells(row, pool_bytes) for row in rows))


def blocks_in(pool_bytes: int | None, block_bytes: float) -> int | None:
    """Blocks that a pool keeps. None: unlimited."""
    from peercached.sizing.working_set import USABLE

    return None if pool_bytes is None else max(int(pool_bytes * USABLE / block_bytes), 1)


def _row(pool: int | None, shared: Any, alone: Any, prefill_rate: float | None) -> dict[str, Any]:
    from peercached.sizing.trace import BLOCK_TOKENS

    found = shared.here + shared.peer
    row = {
        "pool_bytes": pool,
        "hit_rate": shared.hit_rate,
        "from_peers": shared.peer / found if found else 0.0,
        "hit_rate_alone": alone.hit_rate,
        "tokens_saved": found * BLOCK_TOKENS,
    }
    if prefill_rate is not None:
        row["seconds_saved"] = found * BLOCK_TOKENS / prefill_rate
    return row


def _cells(row: dict[str, Any], wanted: int) -> list[str]:
    pool = row["pool_bytes"]
    cells = [
        "unlimited" if pool is None else size(pool) + (" (asked for)" if pool == wanted else ""),
        percent(row["hit_rate"]),
        percent(row["from_peers"]),
        percent(row["hit_rate_alone"]),
    ]
    if "seconds_saved" in row:
        cells.append(f"{duration(row['seconds_saved'])} ({count(row['tokens_saved'])} tokens)")
    return cells
