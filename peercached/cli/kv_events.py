"""`peercachectl kv-events`: what a router needs to subscribe, and the state of the events."""

from __future__ import annotations

from pathlib import Path

import click

from peercached.admin.status import KvEvents
from peercached.cli.command import ctl_command
from peercached.cli.connection import Target
from peercached.cli.exits import Failure
from peercached.cli.output import count, plural, print_json, size


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
    next_number = int(found.next_number, 16)
    if as_json:
        document = found.model_dump(mode="json") | {"next_number": str(next_number)}
        print_json({**places, **keys, **document})
        return
    for name, value in {**places, "auth": found.auth, **keys}.items():
        click.echo(f"{name:<18} {value}")
    pages = "this node" if found.of == "own" else "all nodes"
    click.echo(
        f"Subscribers know of {plural(found.told, 'page')} of {pages}. "
        f"So far: {plural(found.events, 'event')} in "
        f"{plural(found.batches, 'batch', 'batches')} ({size(found.bytes)}). "
        f"The next batch is number {next_number}."
    )
    click.echo(
        f"Subscribers: {count(found.subscribers)}. Followers over gRPC: {count(found.followers)}. "
        f"Handshakes refused: {count(found.handshakes_refused)}."
    )
    click.echo(
        f"Replays: {count(found.replays)}, of them {count(found.snapshots)} from a snapshot. "
        f"Replays refused: {count(found.replays_refused)}. "
        f"Replays that the subscriber did not take: {count(found.replays_stalled)}."
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
