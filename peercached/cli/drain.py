"""`peercachectl drain` and `undrain`: a node hands its warmest pages to peers before it leaves."""

from __future__ import annotations

import sys
import time

import click

from peercached.admin.status import Drain
from peercached.cli import exits
from peercached.cli.command import ctl_command
from peercached.cli.connection import Target
from peercached.cli.number import Number, Size
from peercached.cli.output import print_json, progress, size

_POLL_S = 0.2
_FINAL = ("drained", "left")


@ctl_command("drain")
@click.option(
    "--seconds",
    type=Number(0, 3600),
    default=60.0,
    show_default=True,
    help="How long handing over may take.",
)
@click.option(
    "--bytes",
    "bytes_max",
    type=Size(),
    default="16GiB",
    show_default=True,
    help="How much may be handed over; the most recently used pages go first.",
)
@click.option("--stay", is_flag=True, help="Do not leave the cluster at the end.")
@click.option("--no-wait", is_flag=True, help="Do not wait for the end; see `status`.")
def drain(
    target: Target, as_json: bool, seconds: float, bytes_max: int, stay: bool, no_wait: bool
) -> None:
    """Takes no more sets, hands the warmest pages to peers, then leaves the cluster.

    A set is answered false at once from now on. Peers take pages that were used more recently than
    the coldest of their own. Others that were used go to the object store, if there is one. Fails
    (exit code 4) if pages within the budget are neither there nor at peers; the node leaves all the
    same, unless --stay is given.
    """
    with target.admin() as admin:
        admin.drain(bytes_max, seconds, stay)
        now = admin.status().drain
        # On a terminal only: a bar of bytes handed over, of those within the budget.
        with progress(min(now.bytes, bytes_max), shown=not (as_json or no_wait)) as advance_to:
            while not no_wait and now.state not in _FINAL and now.state != "no":
                advance_to(now.handed_bytes)
                time.sleep(_POLL_S)
                now = admin.status().drain
    if as_json:
        print_json(now.model_dump(mode="json"))
    else:
        _print(now, no_wait)
    sys.exit(exits.OK if no_wait or now.complete else exits.FAILED)


def _print(now: Drain, no_wait: bool) -> None:
    if no_wait:
        click.echo(f"Draining {now.pages} pages ({size(now.bytes)}); `status` shows how far it is.")
    elif now.state == "no":
        click.echo("Undrained meanwhile.")
    else:
        where = "It has left the cluster" if now.state == "left" else "It stays in the cluster"
        saved = size(now.handed_bytes + now.stored_bytes)
        click.echo(f"{now.outcome} ({saved}, {now.seconds:.1f} s). {where}.")


@ctl_command("undrain")
def undrain(target: Target, as_json: bool) -> None:
    """Takes sets again. Pages that were handed over stay where they are.

    A node that has left the cluster has to be restarted instead.
    """
    with target.admin() as admin:
        admin.undrain()
    if as_json:
        print_json({"draining": False})
    else:
        click.echo("Takes sets again.")
