"""`peercachectl pages`: the hot or the pinned pages of a node."""

from __future__ import annotations

import click

from peercached.cli import exits
from peercached.cli.command import ctl_command
from peercached.cli.connection import Target
from peercached.cli.output import count, duration, print_json, print_table, size


@ctl_command("pages")
@click.option("--hot", is_flag=True, help="The pages read most in the last 10 to 20 minutes.")
@click.option(
    "--pinned", is_flag=True, help="The pinned pages; the pins that end first come first."
)
@click.option("-n", "--namespace", default="", metavar="NAME", help="Of this namespace only.")
@click.option(
    "--limit",
    type=click.IntRange(1, 1000),
    default=20,
    show_default=True,
    help="How many pages.",
)
def pages(
    target: Target, as_json: bool, hot: bool, pinned: bool, namespace: str, limit: int
) -> None:
    """The hot or the pinned pages of this node's pool, and the nodes that hold them.

    Other nodes have lists of their own: ask them with --node. Pages are named by the digests of
    their keys, as `locate KEY` gives them.
    """
    if hot == pinned:
        raise exits.Failure("say which pages: --hot or --pinned", exits.USAGE)
    with target.admin() as admin:
        found = admin.pages("hot" if hot else "pinned", limit, namespace)
    if as_json:
        print_json(found.model_dump(mode="json"))
        return
    where = f"in the pool of {found.node_id} (other nodes: --node NAME)"
    if not found.pages:
        click.echo(f"No page was read lately {where}." if hot else f"No page is pinned {where}.")
        return
    click.echo(f"{'Hot' if hot else 'Pinned'} pages {where}:")
    print_table(
        [
            "digest",
            "namespace",
            ">size",
            *((">reads", ">last use") if hot else (">ends in",)),
            "holders",
        ],
        (
            (
                page.digest,
                page.namespace or f"id {page.namespace_id}",
                size(page.bytes),
                *(
                    (count(page.reads), f"{duration(page.idle_s)} ago")
                    if hot
                    else (duration(page.left_s),)
                ),
                ", ".join(page.holders),
            )
            for page in found.pages
        ),
    )
