"""`peercachectl kv-events`: what a router needs to subscribe, and the state of the events."""

from __future__ import annotations

from pathlib import Path

import click

from peercached.admin.status import KvEvents
from peercached.cli.command import ctl_command
from peercached.cli.connection import Target
from peercached.cli.exits import Failure
from peercached.cli.output import print_json, size


@ctl_command("kv-events")
@click.option(
    "--keys",
    "secret_file",
    metavar="SECRET_FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Print the keys of a subscriber, from the cluster secret in this file.",
)
def kv_events(target: Target, as_json: bool, secret_file: Path | None) -> None:
    """Where routers subscribe to events of pages, their keys, and how far it is."""
    with target.admin() as admin:
        found = admin.status().kv_events
    if not found.port:
        raise Failure("this daemon tells no events of pages: set kv_events_port")
    keys = _keys(found, secret_file)
    host = f"[{found.host}]" if ":" in found.host else found.host
    places = {
        "endpoint": f"tcp://{host}:{found.port}",
        "replay_endpoint": f"tcp://{host}:{found.port + 1}",
    }
    if as_json:
        print_json({**places, **keys, **found.model_dump(mode="json")})
        return
    for name, value in {**places, "auth": found.auth, **keys}.items():
        click.echo(f"{name:<18} {value}")
    pages = "this node" if found.of == "own" else "all nodes"
    click.echo(
        f"Told: {found.told} pages of {pages}, in {found.events} events and {found.batches} "
        f"batches ({size(found.bytes)}). The next batch is number {int(found.next_number, 16)}."
    )
    click.echo(
        f"Subscribers: {found.subscribers}. Replays: {found.replays}, of them {found.snapshots} "
        f"from a snapshot; {found.replays_refused} refused, {found.replays_stalled} not taken. "
        f"Handshakes refused: {found.handshakes_refused}."
    )
    if found.by_digest:
        click.echo(f"Pages told by their digest, because nobody gave a hash: {found.by_digest}.")


def _keys(found: KvEvents, secret_file: Path | None) -> dict[str, str]:
    """In Z85, as ZMQ's options take them."""
    if found.auth != "curve":
        return {}
    from zmq.utils import z85

    from peercached.config.cluster_secret import SecretProblem, read_secret
    from peercached.config.kv_event_keys import client_keys

    keys = {"server_key": z85.encode(bytes.fromhex(found.public_key)).decode()}
    if secret_file is not None:
        try:
            mine = client_keys(read_secret(secret_file).value)
        except SecretProblem as problem:
            raise Failure(f"{secret_file} {problem}: {problem.remedy}") from problem
        keys["client_public_key"] = z85.encode(mine.public).decode()
        keys["client_secret_key"] = z85.encode(mine.private).decode()
    return keys
