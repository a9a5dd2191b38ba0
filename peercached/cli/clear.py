"""`peercachectl clear`: removes a namespace's pages on all nodes."""

from __future__ import annotations

import sys
from dataclasses import replace

import click

from peercached.cli import exits
from peercached.cli.command import confirm, ctl_command
from peercached.cli.connection import Target
from peercached.cli.output import print_json

# An object store that hangs takes five seconds, beside those of members that do.
CLEAR_S = 15.0


@ctl_command("clear")
@click.option("-n", "--namespace", required=True, metavar="NAME", help="The namespace to clear.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def clear(target: Target, as_json: bool, namespace: str, yes: bool) -> None:
    """Makes all pages of a namespace vanish, on every node, at once.

    If it cannot reach some nodes, it names them and fails (exit code 4). They learn of it when they
    are back.
    """
    if not yes:
        confirm(
            f"Drop every page of namespace {namespace!r} on all nodes?",
            "clear drops every page of the namespace on all nodes; say --yes to mean it",
        )
    with replace(target, timeout_s=target.timeout_s or CLEAR_S).admin() as admin:
        unreached = admin.clear(namespace)
    if as_json:
        print_json({"namespace": namespace, "cleared": not unreached, "unreached": unreached})
    elif unreached:
        click.echo(
            f"Cleared {namespace!r}, but {', '.join(unreached)} could not be reached. Pages there "
            "stay until they are back. Run it again to be sure.",
            err=True,
        )
    else:
        click.echo(f"Cleared {namespace!r} on all nodes.")
    sys.exit(exits.FAILED if unreached else exits.OK)
