"""`peercachectl process`: the daemon's threads and memory, and what it runs on."""

from __future__ import annotations

import click

from peercached.admin.process import Process
from peercached.cli.command import ctl_command
from peercached.cli.connection import Target
from peercached.cli.output import count, print_json, print_table, size


@ctl_command("process")
def process(target: Target, as_json: bool) -> None:
    """The daemon's threads, memory and open files, and the machine that it runs on.

    Threads of the same name share a line. A "worker" thread serves a connection of a worker, and a
    "peer" thread one of another node. The "follow" thread hears of the other nodes' changes, and
    "followers" tells them ours. Threads with the name of the program are the control plane.
    """
    with target.admin() as admin:
        document = admin.process()
    if as_json:
        print_json(document.model_dump(mode="json"))
    else:
        _show(document)


def _show(document: Process) -> None:
    on = document.environment
    build = ", ".join(f"{k} {v}" for k, v in on.build.items() if v and k != "version")
    packages = ", ".join(f"{name} {version}" for name, version in on.packages.items())
    for line in (
        f"peercached {on.build.get('version', '?')}, pid {document.pid} of node "
        f"{document.node_id} ({build})",
        f"{on.kernel} on {on.machine}, {on.processors} processors, "
        f"{size(on.memory_bytes)} of memory",
        f"Python {on.python}, {packages}",
        f"{size(document.resident_bytes)} in memory, {count(document.open_files)} of "
        f"{count(document.open_files_max)} files open",
        "",
    ):
        click.echo(line)
    print_table(
        ["thread", ">threads", ">processor time"],
        ((of.name, of.threads, f"{of.cpu_s:.1f} s") for of in document.threads),
    )
