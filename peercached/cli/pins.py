"""`peercachectl pin` and `unpin`: pages stay in a pool for a while."""

from __future__ import annotations

import re
import sys
from typing import NoReturn

import click

from peercached.cli import exits
from peercached.cli.command import ctl_command, key_bytes, namespace_option, shown
from peercached.cli.connection import Target
from peercached.cli.locate import must_be_absent
from peercached.cli.output import duration, plural, print_json

_SECONDS = {"": 1, "s": 1, "m": 60, "min": 60, "h": 3600}


def seconds_of(text: str) -> float:
    """Seconds from `600`, `90s`, `10m` or `1h`. Raises ValueError."""
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) ?(s|m|min|h|)", text.strip())
    if found is None:
        raise ValueError(f"{text!r} is not a time; give seconds, or 90s, 10m, 1h")
    return float(found[1]) * _SECONDS[found[2]]


@ctl_command("pin")
@click.argument("keys", nargs=-1, required=True)
@namespace_option
@click.option(
    "--for",
    "time",
    metavar="TIME",
    required=True,
    help="How long from now on: 90s, 10m; at most 1h.",
)
@click.option("--here", is_flag=True, help="Bring the pages to this node, and pin them here.")
@click.option("--prefix", is_flag=True, help="Only the keys before the first absent one.")
def pin(
    target: Target,
    as_json: bool,
    keys: tuple[str, ...],
    namespace: str,
    time: str,
    here: bool,
    prefix: bool,
) -> None:
    """Keeps KEYS from eviction for a while, at a node that holds them or here.

    Pinning a page again sets its time anew. `remove` and `clear` win over a pin. Exit code 1 if one
    of KEYS is absent, 3 if its holder does not answer. Exit code 4 if the bound of pins is reached
    (pin_share, the namespace's quota).
    """
    try:
        seconds = seconds_of(time)
    except ValueError as error:
        raise exits.Failure(f"--for: {error}", exits.USAGE) from error
    with target.admin() as admin:
        outcomes, why_not = admin.pin(
            namespace, [key_bytes(key) for key in keys], seconds, prefix=prefix, here=here
        )
        for key, outcome in zip(keys, outcomes, strict=True):
            if outcome == "absent":
                must_be_absent(key, admin.locate(namespace, key_bytes(key)))
    _report(as_json, keys, outcomes, why_not, f"pinned for {duration(seconds)}")


@ctl_command("unpin")
@click.argument("keys", nargs=-1, required=True)
@namespace_option
def unpin(target: Target, as_json: bool, keys: tuple[str, ...], namespace: str) -> None:
    """Ends the pins of KEYS at all nodes that hold them.

    Exit code 1 if one was not pinned, 3 if one may stay pinned at a holder that does not answer.
    """
    with target.admin() as admin:
        outcomes, why_not = admin.unpin(namespace, [key_bytes(key) for key in keys])
    _report(as_json, keys, outcomes, why_not, "unpinned")


def _report(
    as_json: bool, keys: tuple[str, ...], outcomes: list[str], why_not: str, done: str
) -> NoReturn:
    if as_json:
        print_json({"outcome": dict(zip(keys, outcomes, strict=True)), "why_not": why_not})
    else:
        for key, outcome in zip(keys, outcomes, strict=True):
            click.echo(f"{done if outcome == 'ok' else outcome}  {shown(key)}")
    failed = [outcome for outcome in outcomes if outcome not in ("ok", "absent")]
    code = exits.of_pages(outcomes)
    if failed:
        raise exits.Failure(f"{plural(len(failed), 'page')} not {done}: {why_not}", code)
    sys.exit(code)
