"""`peercachectl trace KEY`: the time of each step of one get."""

from __future__ import annotations

import sys

import click

from peercached.admin.trace import Trace, TraceStep
from peercached.cli import exits
from peercached.cli.command import ctl_command, key_bytes, namespace_option, shown
from peercached.cli.connection import Target
from peercached.cli.output import print_json, print_table, size

_WORDS = {
    "pool": "this node's pool",
    "own shard": "this node's shard",
    "owner": "  owner",
    "copy": "  copy",
    "store": "the object store",
}
_EXITS = {
    "ok": exits.OK,
    "absent": exits.ABSENT,
    "suspect": exits.UNREACHABLE,
    "deadline": exits.UNREACHABLE,
}


@ctl_command("trace")
@click.argument("key")
@namespace_option
def trace(target: Target, as_json: bool, key: str, namespace: str) -> None:
    """Lets the daemon get KEY as it would for a worker, and tells how long each step took.

    It is a real get: counted, and the page counts as used. The page goes into memory of the
    daemon's own and is dropped. The clock starts after the lookup of the page's place and length.
    Exit code 1 if the page is absent, 3 if a node that may have it does not answer.
    """
    with target.admin() as admin:
        found = admin.trace(namespace, key_bytes(key))
    if as_json:
        print_json(found.model_dump(mode="json"))
    else:
        _show(key, found)
    sys.exit(_EXITS.get(found.outcome, exits.FAILED))


def _show(key: str, found: Trace) -> None:
    length = (
        size(found.length)
        if found.length
        else "of unknown length: no node has a record, nor has the object store"
    )
    click.echo(f"key     {shown(key)} ({length})")
    click.echo(f"digest  {found.digest}")
    click.echo(f"result  {found.outcome} after {_time(found.total_us)}\n")
    print_table(
        ["step", ">at", ">took", "node", "outcome"],
        (
            (
                _WORDS.get(step.name, step.name),
                _time(step.at_us),
                _time(step.took_us),
                step.node_id,
                _outcome(step),
            )
            for step in found.steps
        ),
    )


def _outcome(step: TraceStep) -> str:
    over = f" over {step.transport.upper()}" if step.transport else ""
    return f"{step.outcome}{over}"


def _time(microseconds: float) -> str:
    if microseconds >= 10_000:
        return f"{microseconds / 1000:.1f} ms"
    return f"{microseconds:.1f} us"
