"""`peercachectl move`: hands single pages to another node."""

from __future__ import annotations

import sys

import click

from peercached.cli import exits
from peercached.cli.command import ctl_command, key_bytes, namespace_option
from peercached.cli.connection import Target
from peercached.cli.output import plural, print_json, size


@ctl_command("move")
@click.argument("keys", nargs=-1, required=True)
@namespace_option
@click.option("--to", metavar="NODE", required=True, help="The node that gets the pages.")
def move(target: Target, as_json: bool, keys: tuple[str, ...], namespace: str, to: str) -> None:
    """Hands the pages of KEYS in this node's pool to NODE, as a drain does.

    For pages of another holder (`locate KEY`), give --node. NODE reads and publishes the pages
    first; only then they leave this node. Exit code 1 if one of KEYS was not in the pool here, 4 if
    NODE did not take one.
    """
    with target.admin() as admin:
        moved = admin.move(namespace, [key_bytes(key) for key in keys], to)
    if as_json:
        print_json(
            {
                "node_id": moved.node_id,
                "pages": moved.pages,
                "bytes": moved.bytes,
                "absent": moved.absent,
                "refused": moved.refused,
                "why_not": moved.why_not,
            }
        )
    else:
        click.echo(
            f"Moved {plural(moved.pages, 'page')} ({size(moved.bytes)}) from {moved.node_id} to "
            f"{to}."
        )
        if moved.absent:
            click.echo(f"{plural(moved.absent, 'page')} not in the pool of {moved.node_id}.")
    if moved.refused:
        raise exits.Failure(
            f"{to} did not take {plural(moved.refused, 'page')}: {moved.why_not}", exits.FAILED
        )
    sys.exit(exits.ABSENT if moved.absent else exits.OK)
