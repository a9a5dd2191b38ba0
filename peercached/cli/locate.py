"""`peercachectl locate KEY`: shows a key's owners and holders."""

from __future__ import annotations

import sys

import click

from peercached.admin.status import Located, LocatedOwner
from peercached.cli import exits
from peercached.cli.command import ctl_command, key_bytes, namespace_option, shown
from peercached.cli.connection import Target
from peercached.cli.output import count, print_json, print_table, size, words


@ctl_command("locate")
@click.argument("key")
@namespace_option
def locate(target: Target, as_json: bool, key: str, namespace: str) -> None:
    """Explains where KEY is: digest, owners in ring order, holders.

    Absent (exit code 1) means that neither a member nor the object store has it. If no owner of the
    key can say so for sure, the exit code is 3.
    """
    with target.admin() as admin:
        found = admin.locate(namespace, key_bytes(key))
    if as_json:
        print_json(found.model_dump(mode="json"))
    else:
        _explain(key, found)
    if not found.holders and found.stored is None:
        sys.exit(exits.UNREACHABLE if found.silent() else exits.ABSENT)


def must_be_absent(key: str, found: Located) -> None:
    """Raises Failure if the key, which was not found, may be at a node that does not answer."""
    if silent := found.silent():
        why = f"{shown(key)} was not looked up: {', '.join(silent)} did not answer for sure"
        raise exits.Failure(why, exits.UNREACHABLE)


def _explain(key: str, found: Located) -> None:
    click.echo(f"key        {shown(key)}")
    click.echo(f"namespace  {found.namespace} (id {found.namespace_id}, epoch {found.epoch})")
    click.echo(f"digest     {found.digest}")
    click.echo(f"cached     {'its location is cached here' if found.cached else 'no'}")
    click.echo("\nOwners, in ring order:")
    print_table(["node", "state"], ((owner.node_id, _state(owner)) for owner in found.owners))
    if (stored := found.stored) is not None:
        cost = f", for {stored.read_cost:g}" if stored.read_cost is not None else ""
        click.echo(f"\nThe object store {stored.store} has it:")
        click.echo(f"  {stored.object}, {size(stored.length)} at {count(stored.offset)}")
        click.echo(f"  A get that finds it nowhere else reads it with one request{cost}.")
    if not found.holders:
        silent = found.silent()
        click.echo(
            "\nNo holder is known"
            + (
                f"; {', '.join(silent)} did not answer for sure, so it may exist all the same."
                if silent
                else ": no member has the page in memory or on disk."
            )
        )
        return
    click.echo("\nHolders:")
    print_table(
        ["node", "incarnation", "page is", ">length", ">offset", ">generation", "state"],
        (
            (
                holder.node_id,
                holder.incarnation,
                "in the pool" if holder.resident else "on disk",
                size(holder.length),
                count(holder.offset),
                holder.generation,
                words(
                    ("this node", holder.is_self),
                    ("suspect: its page is a miss for now", holder.suspect),
                ),
            )
            for holder in found.holders
        ),
    )


def _state(owner: LocatedOwner) -> str:
    why = f": {owner.error}" if owner.error else ""
    return words(
        ("this node", owner.is_self),
        ("suspect", owner.suspect),
        (f"did not answer{why}", not owner.answered),
    )
