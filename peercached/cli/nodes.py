"""`peercachectl nodes`: the view of this daemon."""

from __future__ import annotations

import click

from peercached.cli.command import ctl_command
from peercached.cli.connection import Target
from peercached.cli.output import duration, percent, print_json, print_table, size, words


@ctl_command("nodes")
def nodes(target: Target, as_json: bool) -> None:
    """The members of the cluster, as this daemon sees them, and those that left within a day."""
    with target.admin() as admin:
        status = admin.status()
    membership = status.membership
    if as_json:
        departed = [one.model_dump(mode="json") for one in status.departed]
        print_json({**membership.model_dump(mode="json"), "departed": departed})
        return
    masters = ", ".join(master.node_id for master in membership.masters)
    click.echo(f"View {membership.view_number}{f', kept by {masters}' if masters else ''}:")
    print_table(
        [
            "node",
            "address",
            ">data port",
            "incarnation",
            ">pool",
            "pages over",
            ">ring share",
            "state",
        ],
        (
            (
                member.node_id,
                f"{member.host}:{member.peer_port}",
                member.data_port,
                member.incarnation,
                size(member.pool_bytes),
                member.protocol,
                percent(member.ring_share),
                words(
                    ("suspect", member.suspect),
                    ("leaving", member.state == "leaving"),
                    ("this node", member.is_self),
                ),
            )
            for member in membership.members
        ),
    )
    for one in status.departed:
        click.echo(f"{one.node_id} at {one.host} is gone for {duration(one.age_s)}: {one.why}.")
