"""`peercachectl top`: a node's current rates, refreshed."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import asdict
from itertools import count as counting

import click
from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from peercached.admin.client import AdminClient
from peercached.admin.status import Status
from peercached.cli.command import ctl_command
from peercached.cli.connection import Target
from peercached.cli.number import Number
from peercached.cli.output import console, duration, percent, share, size
from peercached.cli.rates import Rates, between
from peercached.cli.status import health_lines

_PEERS_MAX = 8
_HEALTH_LINES_MAX = 4


@ctl_command("top")
@click.option(
    "--interval",
    "interval_s",
    type=Number(0.1, 3600),
    default=1.0,
    show_default=True,
    help="Seconds between two looks.",
)
@click.option("--count", "looks", type=click.IntRange(1), help="End after so many intervals.")
def top(target: Target, as_json: bool, interval_s: float, looks: int | None) -> None:
    """Rates of gets, sets and READs, the hit rate, and what needs attention, until Ctrl-C.

    With --json a line per interval; into a pipe or a file one screen after the other.
    """
    with target.admin() as admin:
        seen = _looks(admin, interval_s, looks)
        try:
            if as_json:
                for status, rates in seen:
                    click.echo(json.dumps({"node": status.node.id, **asdict(rates)}))
                return
            out = console()
            if not out.is_terminal:
                for status, rates in seen:
                    out.print(screen(status, rates), "")
                return
            with Live(
                Text("..."), console=out, auto_refresh=False, vertical_overflow="crop"
            ) as live:
                for status, rates in seen:
                    live.update(screen(status, rates), refresh=True)
        except KeyboardInterrupt:
            pass


def _looks(
    admin: AdminClient, interval_s: float, looks: int | None
) -> Iterator[tuple[Status, Rates]]:
    before, at = admin.status(), time.monotonic()
    for number in counting(1):
        time.sleep(max(at + interval_s - time.monotonic(), 0.0))
        after, now = admin.status(), time.monotonic()
        yield after, between(before, after, now - at)
        if number == looks:
            return
        before, at = after, now


def screen(status: Status, rates: Rates) -> Group:
    """One screen, for any width."""
    node, pool = status.node, status.pool
    members = status.membership.members
    head = Text(
        f"{node.id}  up {duration(node.uptime_s)}  {len(members)} nodes, "
        f"{sum(member.suspect for member in members)} suspect  {len(status.workers)} workers  "
        f"pool {share(pool.used_bytes, pool.capacity_bytes)} of {size(pool.capacity_bytes)}",
        style="bold",
    )
    health = [Text(line) for line in health_lines(status)[:_HEALTH_LINES_MAX]]
    return Group(head, *health, Text(), _operations(rates), Text(), _peers(rates))


def _operations(rates: Rates) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column()
    table.add_column(justify="right")
    table.add_column()
    found = ", ".join(
        f"{n:,.0f} {tier.replace('_', ' ')}" for tier, n in rates.found_keys.items() if n
    )
    misses = ", ".join(f"{n:,.0f} {why}" for why, n in rates.misses.items())
    for title, number, more in (
        ("looked for", rates.asked_keys, _hit_rates(rates)),
        ("  found", sum(rates.found_keys.values()), found),
        ("get", rates.get_pages, f"{size(rates.bytes_got)}/s"),
        ("  here", rates.local_pages, ""),
        ("  from peers", rates.remote_pages, ""),
        ("  missed", sum(rates.misses.values()), misses),
        ("set", rates.set_pages, f"{size(rates.bytes_set)}/s"),
        ("evicted", rates.evictions, ""),
        ("to other nodes", rates.given, ""),
    ):
        table.add_row(title, f"{number:,.0f} /s", more)
    table.add_row("served over TCP", f"{size(rates.bytes_served)}/s", "")
    return table


def _hit_rates(rates: Rates) -> str:
    if rates.hit_rate is None:
        return ""
    larger = [
        f"{percent(rate)} with {pool} the pool"
        for pool, rate in rates.hit_rate_if.items()
        if rate > rates.hit_rate
    ]
    return ", ".join([f"hit rate {percent(rates.hit_rate)}", *larger])


def _peers(rates: Rates) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("read from")
    table.add_column("over")
    for title in ("pages/s", "bytes/s", "errors/s"):
        table.add_column(title, justify="right")
    for peer in rates.peers[:_PEERS_MAX]:
        table.add_row(
            peer.node_id,
            peer.engine,
            f"{peer.pages:,.0f}",
            size(peer.bytes),
            f"{peer.errors:,.0f}",
        )
    if len(rates.peers) > _PEERS_MAX:
        table.add_row(f"and {len(rates.peers) - _PEERS_MAX} more")
    return table
