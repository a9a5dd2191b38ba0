"""`peercachectl config` and `reload`: a running daemon's configuration."""

from __future__ import annotations

import json
import sys
from typing import IO, TYPE_CHECKING

import click

from peercached.cli import exits
from peercached.cli.command import ctl_command
from peercached.cli.connection import Target
from peercached.cli.exits import Failure
from peercached.cli.output import print_json, print_table
from peercached.error_text import reason

if TYPE_CHECKING:
    from peercached.config.from_peercache import Translation


@ctl_command("config")
@click.option(
    "--from-peercache",
    "theirs",
    type=click.File(),
    metavar="FILE",
    help="Translate PeerCache's configuration (JSON; - for standard input), and ask no daemon.",
)
def config(target: Target, as_json: bool, theirs: IO[str] | None) -> None:
    """The configuration in force in the daemon, and the source of each value.

    "live" keys change with `peercachectl reload`, the others with a restart. `peercached config`
    prints the configuration that a daemon would start with.
    """
    if theirs is not None:
        translated = _translated(theirs)
        if as_json:
            print_json(translated.values)
        else:
            click.echo(translated.toml(), nl=False)
        return
    with target.admin() as admin:
        settings = admin.config().settings
    if as_json:
        print_json({name: each.model_dump(mode="json") for name, each in settings.items()})
        return
    print_table(
        ["key", "value", "from", ""],
        (
            (name, json.dumps(each.value), each.source, "live" if each.live else "")
            for name, each in settings.items()
        ),
    )


def _translated(theirs: IO[str]) -> Translation:
    from peercached.config.from_peercache import translate

    try:
        return translate(theirs.read())
    except (ValueError, OSError) as error:
        raise Failure(f"{theirs.name}: {reason(error)}", exits.USAGE) from error


@ctl_command("reload")
def reload(target: Target, as_json: bool) -> None:
    """Reads the configuration again, as SIGHUP does, and names the changed keys.

    If the new configuration cannot work, the daemon keeps the old one (exit code 4).
    """
    with target.admin() as admin:
        changed, needs_restart, problems = admin.reload()
    if as_json:
        print_json({"changed": changed, "needs_restart": needs_restart, "problems": problems})
    else:
        for problem in problems:
            click.echo(f"Not reloaded: {problem}", err=True)
        if changed:
            click.echo(f"In force now: {', '.join(changed)}.")
        if needs_restart:
            click.echo(f"In force after a restart: {', '.join(needs_restart)}.")
        if not (changed or needs_restart or problems):
            click.echo("No key has changed.")
    sys.exit(exits.FAILED if problems else exits.OK)
