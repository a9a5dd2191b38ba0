"""`peercachectl workers`: the workers attached to this daemon."""

from __future__ import annotations

import click

from peercached.cli.command import ctl_command
from peercached.cli.connection import Target
from peercached.cli.output import count, duration, print_json, print_table, size


@ctl_command("workers")
def workers(target: Target, as_json: bool) -> None:
    """The worker processes attached to this daemon, and the memory they share with it."""
    with target.admin() as admin:
        attached = admin.status().workers
    if as_json:
        print_json([worker.model_dump(mode="json") for worker in attached])
        return
    if not attached:
        click.echo("No worker is attached.")
        return
    print_table(
        [
            ">pid",
            ">uid",
            "name",
            "namespace",
            ">connections",
            ">regions",
            ">shared",
            ">requests",
            ">idle",
            ">given up",
        ],
        (
            (
                worker.pid,
                worker.uid,
                worker.name,
                worker.namespace,
                worker.connections,
                worker.regions,
                size(worker.region_bytes),
                count(worker.requests),
                duration(worker.idle_s),
                count(worker.given_up),
            )
            for worker in attached
        ),
    )
