"""`peercachectl hints`: the hints that this node got, and a way to send some."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from pathlib import Path

import click

from peercached.admin.hints import HintOutcomes
from peercached.admin.status import Hints
from peercached.cli import exits
from peercached.cli.command import ctl_command
from peercached.cli.connection import Target
from peercached.cli.output import count, duration, plural, print_json, print_table, size
from peercached.error_text import reason

_FAILED = frozenset({"refused", "missing"})


@ctl_command("hints")
@click.argument("send", required=False, type=click.Choice(["send"]))
@click.argument("file", required=False, type=click.Path(path_type=Path, dir_okay=False))
def hints(target: Target, as_json: bool, send: str | None, file: Path | None) -> None:
    """The hints of routers and engines: actions by outcome, budgets, and the last refusals.

    "answered" counts what the senders were told: "accepted" also means that the action waits for
    its turn. "ended later" counts the outcomes of actions that waited.

    `hints send FILE` hands the envelope in FILE to the daemon, and waits until its actions have
    ended. Exit code 1 if one of them was refused or found no page.
    """
    if send is None:
        with target.admin() as admin:
            status = admin.status()
        if as_json:
            print_json(status.hints.model_dump(mode="json"))
        else:
            _show(status.hints, {one.id: one.name for one in status.namespaces})
        return
    if file is None:
        raise exits.Failure("hints send FILE: name the file of the envelope", exits.USAGE)
    try:
        envelope = file.read_bytes()
    except OSError as error:
        raise exits.Failure(f"{file}: {reason(error)}") from error
    with target.admin() as admin:
        sent = admin.hint(envelope)
    _show_outcomes(sent, as_json)
    if any(one.outcome in _FAILED for one in sent.outcomes):
        sys.exit(1)


def _show_outcomes(sent: HintOutcomes, as_json: bool) -> None:
    if as_json:
        print_json(sent.model_dump(mode="json"))
        return
    print_table(
        ["action", "type", "outcome", ">pages", ">brought", "why"],
        (
            (
                one.action_id,
                one.action_type,
                one.outcome,
                count(one.pages),
                size(one.bytes),
                one.why,
            )
            for one in sent.outcomes
        ),
    )


def _show(found: Hints, names: Mapping[str, str]) -> None:
    if not (found.answered or found.ended or found.malformed):
        click.echo("No hint came since the start of this daemon.")
        return
    click.echo(
        f"brought and not used yet  {plural(found.unused_pages, 'page')}, "
        f"{size(found.unused_bytes)} of {size(found.bytes_max)}"
    )
    click.echo(
        f"retained                  {plural(found.retained_pages, 'page')}, "
        f"{size(found.retained_bytes)} of {size(found.bytes_max)}"
    )
    click.echo(f"waiting                   {plural(found.waiting, 'action')}")
    if found.malformed:
        click.echo(f"malformed                 {plural(found.malformed, 'envelope')}")
    ended = {(one.action, one.outcome): one.count for one in found.ended}
    answered = {(one.action, one.outcome): one.count for one in found.answered}
    click.echo()
    print_table(
        ["action", "outcome", ">answered", ">ended later"],
        (
            (
                action,
                outcome,
                count(answered.get((action, outcome), 0)),
                count(ended.get((action, outcome), 0)),
            )
            for action, outcome in sorted(answered.keys() | ended.keys())
        ),
    )
    if found.namespaces:
        click.echo()
        print_table(
            ["namespace", "tenant", ">may have", ">may bring now"],
            (
                (
                    names.get(one.id) or f"id {one.id}",
                    one.tenant,
                    size(one.part_bytes),
                    size(one.left_bytes),
                )
                for one in found.namespaces
            ),
        )
    if found.refusals:
        click.echo()
        print_table(
            [">ago", "action", "outcome", "why"],
            (
                (duration(max(0.0, time.time() - one.at_s)), one.action_type, one.outcome, one.why)
                for one in reversed(found.refusals)
            ),
        )
