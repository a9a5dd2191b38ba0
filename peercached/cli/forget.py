"""`peercachectl forget`: removals stop waiting for a node that is gone for good."""

from __future__ import annotations

import sys

import click

from peercached.cli import exits
from peercached.cli.command import confirm, ctl_command
from peercached.cli.connection import Target
from peercached.cli.output import print_json


@ctl_command("forget")
@click.argument("node_id", metavar="NODE")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option(
    "--listening",
    is_flag=True,
    help="Even if something at its address takes connections, and nobody can stop it.",
)
def forget(target: Target, as_json: bool, node_id: str, yes: bool, listening: bool) -> None:
    """Says that a vanished node has ended: its host is off, or gone.

    Removals wait for such a node: it may only be frozen or cut off, and still serve pages that
    were removed. If you forget a node that still runs, its workers may get those pages.
    """
    if not yes:
        confirm(
            f"Does the daemon of {node_id} not run any more?",
            f"forget is for a daemon that does not run any more; say --yes if {node_id}'s does not",
        )
    with target.admin() as admin:
        unreached = admin.forget_node(node_id, listening)
    if as_json:
        print_json({"node_id": node_id, "forgotten": not unreached, "unreached": unreached})
    elif unreached:
        click.echo(
            f"Forgot {node_id!r}, but {', '.join(unreached)} could not be reached: run it again to "
            "be sure.",
            err=True,
        )
    else:
        click.echo(f"Forgot {node_id!r} on all nodes.")
    sys.exit(exits.FAILED if unreached else exits.OK)
