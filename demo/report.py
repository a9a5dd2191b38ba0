"""The result of a replay: one document, shown as tables or as JSON."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from demo.belady import best_hits, best_hits_unbounded
from demo.replay import Phase
from demo.tally import Tally, percentile
from demo.workload import Request

_WRONG_SHOWN_MAX = 10


def summarise(
    phases: Sequence[Phase],
    taken: Sequence[Request],
    *,
    workload: str,
    page_bytes: int,
    capacity_pages: int,
    disk_pages: int = 0,
    daemons: Mapping[str, Mapping[str, Any] | None],
) -> dict[str, Any]:
    """`daemons`: the status document of each node's daemon, in order; None for a dead one."""
    prefill = _sum(tally for phase in phases for tally in phase.prefill)
    decode = _sum(tally for phase in phases for tally in phase.decode)
    both = _sum([prefill, decode])
    seconds = sum(phase.seconds for phase in phases)
    asked = sum(len(request.chain) for request in taken)
    alive = [status for status in daemons.values() if status is not None]
    return {
        "workload": workload,
        "requests": len(taken),
        "seconds": seconds,
        "page_bytes": page_bytes,
        "capacity_pages": capacity_pages,
        "prefill_pages": asked,
        "hit_rate": prefill.hit_rate,
        "best_hit_rate_infinite": best_hits_unbounded(taken) / max(1, asked),
        "best_hit_rate_at_capacity": best_hits(taken, capacity_pages) / max(1, asked),
        # The ideal cache keeps each page either in memory or on disk, so the capacities add up.
        "disk_pages": disk_pages,
        "best_hit_rate_with_disk": best_hits(taken, capacity_pages + disk_pages) / max(1, asked),
        "decode_hit_rate": decode.hit_rate,
        "set_bytes": both.set_bytes,
        "got_bytes": both.got_bytes,
        "gb_per_s": (both.set_bytes + both.got_bytes) / 1e9 / seconds if seconds else math.nan,
        "in_calls_gb_per_s": {
            "get": _rate(both.got_bytes, both.get_s),
            "set": _rate(both.set_bytes, both.set_s),
        },
        "latency_ms": {
            name: {
                "p50": percentile(times, 0.5) * 1e3,
                "p99": percentile(times, 0.99) * 1e3,
                "max": max(times, default=math.nan) * 1e3,
                "calls": len(times),
            }
            for name, times in (
                ("exists", both.exists_s),
                ("get", both.get_s),
                ("set", both.set_s),
            )
        },
        "promised_but_missed": dict(both.missed),
        "not_set": dict(both.unset),
        **{
            name: sum(status["operations"][name] for status in alive)
            for name in ("get_local", "get_disk", "get_remote", "get_peer_disk", "stale_retries")
        },
        "from_store": sum(status["cold"].get("read_pages", 0) for status in alive),
        "evictions": sum(status["pool"]["evictions"] for status in alive),
        "between_daemons_bytes": _by_transport(alive),
        "phases": [
            _phase(phase, list(daemons)[: len(phase.prefill)]) for phase in phases if phase.requests
        ],
        "errors": both.errors,
        "wrong_pages": both.wrong_pages,
        "wrong": both.wrong,
    }


def _by_transport(daemons: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Bytes of pages that the daemons read from each other, by transport."""
    count: Counter[str] = Counter()
    for status in daemons:
        for peer in status["transfer"]:
            count[peer["engine"]] += peer["bytes"]
    return dict(count)


def succeeded(summary: Mapping[str, Any]) -> bool:
    """Whether every byte was right, and no call of the client raised."""
    return summary["wrong_pages"] == 0 and not summary["errors"]


def show(summary: Mapping[str, Any], console: Console) -> None:
    console.print(_overview(summary))
    if len(summary["phases"]) > 1:
        console.print(_phases(summary["phases"]))
    for line in summary["wrong"][:_WRONG_SHOWN_MAX]:
        console.print(f"wrong: {line}", style="bold red", markup=False)
    for line, count in Counter(summary["errors"]).most_common(_WRONG_SHOWN_MAX):
        console.print(f"the client raised {count} times: {line}", style="bold red", markup=False)


def _overview(summary: Mapping[str, Any]) -> Table:
    capacity_bytes = summary["capacity_pages"] * summary["page_bytes"]
    table = Table(title=summary["workload"], show_header=False, title_justify="left")
    table.add_column(style="bold")
    table.add_column()
    table.add_row("requests", f"{summary['requests']:,} in {summary['seconds']:.1f} s")
    table.add_row(
        "block hit rate (prefill)",
        f"{_percent(summary['hit_rate'])} of {summary['prefill_pages']:,} pages of "
        f"{_size(summary['page_bytes'])}",
    )
    table.add_row(
        "  best possible",
        f"{_percent(summary['best_hit_rate_infinite'])} at infinite capacity, "
        f"{_percent(summary['best_hit_rate_at_capacity'])} at this capacity "
        f"({summary['capacity_pages']:,} pages, {_size(capacity_bytes)}; Belady)",
    )
    if summary["disk_pages"]:
        table.add_row(
            "",
            f"{_percent(summary['best_hit_rate_with_disk'])} with the disks "
            f"({summary['disk_pages']:,} pages more)",
        )
    table.add_row(
        "handed to decode",
        f"{_percent(summary['decode_hit_rate'])} of the prompts' pages, "
        "set on one node and got on another",
    )
    table.add_row(
        "pages got",
        f"{summary['get_local']:,} from the worker's own node, "
        f"{summary['get_remote']:,} from another"
        + (
            f", {summary['get_disk']:,} from its disk, {summary['get_peer_disk']:,} from "
            "another's disk"
            if summary["disk_pages"]
            else ""
        ),
    )
    table.add_row(
        "bytes",
        f"{summary['set_bytes'] / 1e9:.2f} GB set, {summary['got_bytes'] / 1e9:.2f} GB got: "
        f"{summary['gb_per_s']:.2f} GB/s, making and checking the bytes included",
    )
    by_transport = summary["between_daemons_bytes"]
    table.add_row(
        "between daemons",
        ", ".join(
            f"{count / 1e9:.2f} GB over {transport.upper()}"
            for transport, count in sorted(by_transport.items())
        )
        or "nothing",
    )
    rates = summary["in_calls_gb_per_s"]
    table.add_row(
        "  within a call", f"{rates['set']:.2f} GB/s set, {rates['get']:.2f} GB/s got, per worker"
    )
    for name, latency in summary["latency_ms"].items():
        table.add_row(
            name,
            f"p50 {latency['p50']:.2f} ms, p99 {latency['p99']:.2f} ms, "
            f"max {latency['max']:.1f} ms ({latency['calls']:,} calls)",
        )
    if summary["from_store"]:
        table.add_row("from the object store", f"{summary['from_store']:,} pages")
    table.add_row("evictions", f"{summary['evictions']:,}")
    table.add_row("stale retries", f"{summary['stale_retries']:,}")
    table.add_row("promised, then missed", _reasons(summary["promised_but_missed"]))
    table.add_row("not set", _reasons(summary["not_set"]))
    wrong = summary["wrong_pages"]
    table.add_row(
        "WRONG BYTES", f"{wrong:,} pages" if wrong else "0", style="bold red" if wrong else "green"
    )
    return table


def _phases(phases: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(title="phases of the replay", title_justify="left")
    nodes = list(phases[0]["hit_rate_by_node"])
    hits = [f"hits on {node}" for node in nodes]
    columns = [
        "phase",
        "requests",
        "requests/s",
        "hits",
        *hits,
        "to decode",
        "longest call",
        "not set",
    ]
    for place, column in enumerate(columns):
        table.add_column(column, justify="left" if place == 0 else "right")
    for phase in phases:
        table.add_row(
            phase["name"],
            f"{phase['requests']:,}",
            f"{phase['requests_per_s']:.1f}",
            _percent(phase["hit_rate"]),
            *(_percent(phase["hit_rate_by_node"][node]) for node in nodes),
            _percent(phase["decode_hit_rate"]),
            f"{phase['longest_call_ms']:.0f} ms",
            _reasons(phase["not_set"]),
        )
    return table


def _phase(phase: Phase, nodes: Sequence[str]) -> dict[str, Any]:
    both = _sum([*phase.prefill, *phase.decode])
    calls = [*both.exists_s, *both.get_s, *both.set_s]
    return {
        "name": phase.name,
        "requests": phase.requests,
        "seconds": phase.seconds,
        "requests_per_s": phase.requests / phase.seconds if phase.seconds else math.nan,
        "hit_rate": _sum(phase.prefill).hit_rate,
        "hit_rate_by_node": {
            node: tally.hit_rate for node, tally in zip(nodes, phase.prefill, strict=True)
        },
        "decode_hit_rate": _sum(phase.decode).hit_rate,
        "longest_call_ms": max(calls, default=math.nan) * 1e3,
        "not_set": dict(both.unset),
        "promised_but_missed": dict(both.missed),
    }


def _sum(tallies: Iterable[Tally]) -> Tally:
    total = Tally()
    for tally in tallies:
        total += tally
    return total


def _rate(size_bytes: int, times_s: Sequence[float]) -> float:
    return size_bytes / 1e9 / sum(times_s) if times_s else math.nan


def _percent(rate: float) -> str:
    return "-" if math.isnan(rate) else f"{rate:.1%}"


def _reasons(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in sorted(counts.items())) or "none"


def _size(size_bytes: float) -> str:
    for unit in ("bytes", "KiB", "MiB"):
        if size_bytes < 1024:
            return f"{size_bytes:.3g} {unit}"
        size_bytes /= 1024
    return f"{size_bytes:.3g} GiB"
