"""`peercachectl wait`: for scripts that need a daemon to be up."""

from __future__ import annotations

import time
from dataclasses import replace

import click

from peercached.admin.client import Refused, Unreachable
from peercached.admin.status import Status
from peercached.cli.command import ctl_command
from peercached.cli.connection import Target
from peercached.cli.exits import Failure
from peercached.cli.output import plural, print_json

WAIT_S = 60.0
_POLL_S = 0.25


@ctl_command("wait")
@click.option("--healthy", is_flag=True, help="Also wait until status has no errors.")
@click.option("--nodes", type=click.IntRange(1), help="Also wait until so many nodes are alive.")
def wait(target: Target, as_json: bool, healthy: bool, nodes: int | None) -> None:
    """Waits until the daemon serves workers. If it does not within --timeout (by default 60
    seconds): exit code 4 and the reason.

    A node serves its workers before it has joined the cluster, too. With --nodes 2 or more it waits
    for that as well.
    """
    patience_s = target.timeout_s or WAIT_S
    target = replace(target, timeout_s=0.0)  # no answer alone takes all of it
    began = time.monotonic()
    while True:
        left_s = began + patience_s - time.monotonic()
        why = _why_not(target.within(left_s), healthy, nodes)
        waited_s = time.monotonic() - began
        if not why:
            break
        if waited_s >= patience_s:
            raise Failure(f"after {waited_s:.1f} s: {why}")
        time.sleep(_POLL_S)
    if as_json:
        print_json({"waited_s": round(waited_s, 3)})
    else:
        click.echo(f"Ready after {waited_s:.1f} s.")


def _why_not(target: Target, healthy: bool, nodes: int | None) -> str:
    try:
        with target.admin() as admin:
            status = admin.status()
    except (Unreachable, Refused) as error:
        return str(error)
    return unmet(status, healthy, nodes)


def unmet(status: Status, healthy: bool, nodes: int | None) -> str:
    """The condition that the daemon does not meet yet, or ""."""
    if status.node.starting:
        return "the daemon still starts"
    if status.node.stopping:
        return "the daemon stops"
    alive = sum(one.state == "alive" and not one.suspect for one in status.membership.members)
    if nodes is not None and alive < nodes:
        return f"{plural(alive, 'node')} alive, {nodes} wanted"
    errors = [entry.sentence for entry in status.health if entry.severity == "error"]
    return errors[0] if healthy and errors else ""
