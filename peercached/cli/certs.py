"""`peercachectl certs`: certificates for a test or a small site, from its own CA."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import click

from peercached.cli import exits
from peercached.cli.command import ctl_command
from peercached.cli.connection import Target
from peercached.cli.output import print_json
from peercached.config.values import check_node_id, is_host
from peercached.error_text import error_text

_EXITS = "Exit codes: 0 done, 2 wrong usage, 4 failed: nothing was overwritten."


@ctl_command("certs", _EXITS)
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.argument("nodes", nargs=-1, required=True, metavar="NODE=HOST[,HOST...]...")
@click.option("--days", default=365, show_default=True, type=click.IntRange(1, 3650))
@click.option("--renew", is_flag=True, help="Replace the nodes' files that are in FOLDER.")
def certs(
    target: Target, as_json: bool, folder: Path, nodes: tuple[str, ...], days: int, renew: bool
) -> None:
    """Makes a certificate and a key for each node in FOLDER, and the authority there if there is
    none yet; no daemon is asked.

    HOST is the node's `host`: peers connect to it. Only --renew overwrites files, and never those
    of the authority. Keep ca.key off the nodes: with it, anybody can pose as any node.
    """
    del target
    from peercached.peer.rpc.authority import Authority, files_of

    wanted = [_node(text) for text in nodes]
    if len({node_id for node_id, _ in wanted}) < len(wanted):
        raise click.UsageError("a node is named twice")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    ca, ca_key = folder / "ca.crt", folder / "ca.key"
    if not renew:
        for node_id, _ in wanted:
            files = files_of(folder, node_id)
            for path in (files.certificate, files.key):
                if Path(path).exists():
                    raise exits.Failure(
                        f"{path} is there already and is not overwritten: --renew replaces it"
                    )
    try:
        if ca.exists() or ca_key.exists():
            authority = Authority.load(ca, ca_key)
        else:
            authority = Authority.make()
            authority.save(ca, ca_key)
        for node_id, hosts in wanted:
            files = files_of(folder, node_id)
            authority.issue(
                Path(files.certificate), Path(files.key), node_id, hosts, timedelta(days), renew
            )
    except (OSError, ValueError) as error:
        raise exits.Failure(error_text(error)) from error
    if as_json:
        print_json(
            {
                "authority": str(ca),
                "nodes": [
                    {
                        "node_id": node_id,
                        "hosts": hosts,
                        "certificate": files_of(folder, node_id).certificate,
                        "key": files_of(folder, node_id).key,
                    }
                    for node_id, hosts in wanted
                ],
            }
        )
        return
    click.echo(f"{ca_key} stays here: with it, anybody can pose as any node.")
    for node_id, hosts in wanted:
        files = files_of(folder, node_id)
        click.echo(
            f"\nTo {node_id} ({', '.join(hosts)}), readable by the daemon's user only:\n"
            f"    {files.ca}  {files.certificate}  {files.key}\n"
            "with these lines in its configuration:\n"
            '    tls_ca = "/etc/peercached/ca.crt"\n'
            f'    tls_cert = "/etc/peercached/{node_id}.crt"\n'
            f'    tls_key = "/etc/peercached/{node_id}.key"'
        )
    if renew:
        click.echo("\nRunning daemons take up replaced files by themselves, within seconds.")


def _node(text: str) -> tuple[str, list[str]]:
    node_id, _, rest = text.partition("=")
    hosts = [host for host in (rest or node_id).split(",") if host]
    try:
        check_node_id(node_id)
    except ValueError as error:
        raise click.UsageError(f"{node_id!r} {error}") from error
    if not node_id or node_id == "ca":
        raise click.UsageError(f"{text!r} names no node; give NODE=HOST")
    for host in hosts:
        if not is_host(host):
            raise click.UsageError(f"{host!r} is neither a host name nor an address")
    return node_id, hosts
