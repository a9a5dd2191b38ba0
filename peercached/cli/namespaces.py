"""`peercachectl namespaces`: what each namespace holds here, and its hit rate."""

from __future__ import annotations

import click

from peercached.cli.command import ctl_command
from peercached.cli.connection import Target
from peercached.cli.output import count, percent, print_json, print_table, size


@ctl_command("namespaces")
def namespaces(target: Target, as_json: bool) -> None:
    """Pages, memory, quota and hit rate of each namespace that workers of this node opened.

    Sorted by memory, most first. Counters are since the start of the daemon. "other bytes" compares
    the pages set here with those of the same key at other nodes.
    """
    with target.admin() as admin:
        status = admin.status()
    found = status.namespaces
    if as_json:
        print_json([one.model_dump(mode="json") for one in found])
        return
    if not found:
        click.echo("No worker has opened a namespace here.")
        return
    print_table(
        [
            "namespace",
            ">pages",
            ">pool",
            ">quota",
            ">disk",
            ">looked for",
            ">hit rate",
            ">2x pool",
            ">other bytes",
            ">epoch",
            "id",
        ],
        (
            (
                one.name,
                count(one.pool_pages),
                size(one.pool_bytes),
                size(one.quota_bytes) if one.quota_bytes else "",
                size(one.disk_bytes) if one.disk_bytes else "",
                count(one.demand.asked),
                percent(one.demand.hit_rate),
                percent(one.demand.hit_rate_if("2x")),
                f"{count(one.keys_differed)} of {count(one.keys_compared)}"
                if one.keys_compared
                else "",
                one.epoch,
                one.id,
            )
            for one in found
        ),
    )
    if status.namespaces_open > len(found):
        click.echo(f"and {count(status.namespaces_open - len(found))} more with less memory")
