"""`peercachectl evict`: makes room in a node's pool."""

from __future__ import annotations

import sys

import click

from peercached.cli import exits
from peercached.cli.command import confirm, ctl_command, key_bytes, namespace_option
from peercached.cli.connection import Target
from peercached.cli.number import Size
from peercached.cli.output import plural, print_json, size


@ctl_command("evict")
@click.argument("keys", nargs=-1)
@namespace_option
@click.option("--bytes", "wanted", type=Size(), help="The coldest pages, about so much.")
@click.option("--all", "everything", is_flag=True, help="Every page of the pool.")
@click.option("--yes", is_flag=True, help="Do not ask (--all).")
def evict(
    target: Target,
    as_json: bool,
    keys: tuple[str, ...],
    namespace: str,
    wanted: int | None,
    everything: bool,
    yes: bool,
) -> None:
    """Drops pages from this node's pool as if there were no room: KEYS, or the coldest ones.

    Copies on disk stay, and so do those at other nodes: `locate KEY` names them, and --node evicts
    there. `remove` drops a page everywhere. Pages that are being read or are held stay. Exit code 1
    if none of KEYS was dropped.
    """
    if (bool(keys), wanted is not None, everything).count(True) != 1:
        raise exits.Failure(
            "say which pages should go: KEYS, or --bytes SIZE, or --all", exits.USAGE
        )
    if everything and not yes:
        confirm(
            "Drop every page of this node's pool?", "--all empties the pool; say --yes to mean it"
        )
    with target.admin() as admin:
        if keys:
            done = admin.evict(namespace, [key_bytes(key) for key in keys])
        else:
            done = admin.evict_coldest(wanted)
    if as_json:
        print_json({"node_id": done.node_id, "pages": done.pages, "bytes": done.bytes})
    else:
        click.echo(
            f"Evicted {plural(done.pages, 'page')} ({size(done.bytes)}) from the pool of "
            f"{done.node_id}."
        )
    sys.exit(exits.ABSENT if keys and not done.pages else exits.OK)
