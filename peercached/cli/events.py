"""`peercachectl events`: what the nodes saw within the last day."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import datetime

import click

from peercached.admin.events import Event
from peercached.cli.command import ctl_command
from peercached.cli.connection import Target
from peercached.cli.exits import Failure
from peercached.cli.number import Number

_POLL_S = 1.0


@ctl_command("events")
@click.option("-f", "--follow", is_flag=True, help="Go on with new events, until Ctrl-C.")
@click.option("--since", "since_s", type=Number(0), help="Only the last so many seconds.")
def events(target: Target, as_json: bool, follow: bool, since_s: float | None) -> None:
    """Joins, deaths, restarts, clears, and findings that began or ended, as this node saw them.

    Oldest first, of the last day at most. Without a state_dir a restart of the daemon forgets them.
    With --json an object per line.
    """
    oldest = time.time() - since_s if since_s is not None else 0.0
    try:
        for event in _seen(target, follow):
            if event.at >= oldest:
                click.echo(json.dumps(event.model_dump()) if as_json else line(event))
    except KeyboardInterrupt:
        pass


def line(event: Event) -> str:
    at = datetime.fromtimestamp(event.at).astimezone()
    return f"{at:%Y-%m-%d %H:%M:%S}  {event.kind:<9}  {event.node_id:<12}  {event.text}"


def _seen(target: Target, follow: bool) -> Iterator[Event]:
    last = 0
    with target.admin() as admin:
        incarnation = admin.status().node.incarnation
        while True:
            found = admin.events(last).events
            yield from found
            last = found[-1].number if found else last
            if not follow:
                return
            time.sleep(_POLL_S)
            if admin.status().node.incarnation != incarnation:
                raise Failure("the daemon was restarted: run it again for its new events")
