"""`peercachectl router-token`: prints the token that opens a daemon's doors for routers."""

from __future__ import annotations

from pathlib import Path

import click

from peercached.cli import exits
from peercached.cli.command import ctl_command
from peercached.cli.connection import Target
from peercached.cli.output import print_json
from peercached.config.cluster_secret import SecretProblem, read_secret
from peercached.error_text import reason

_EXITS = "Exit codes: 0 printed, 2 wrong usage, 4 there is no secret, or it cannot be read."


@ctl_command("router-token", _EXITS)
@click.argument("file", required=False, type=click.Path(path_type=Path, dir_okay=False))
def router_token(target: Target, as_json: bool, file: Path | None) -> None:
    """Prints the token that routers show at router_port and at POST /api/v1/hints.

    It is made from the cluster secret in FILE. Without FILE, the daemon of this host is asked for
    its cluster_secret_file, or --config is read. When the secret is replaced, the token changes
    with it.
    """
    path = file or _secret_file(target)
    try:
        secret = read_secret(path)
    except SecretProblem as error:
        raise exits.Failure(f"{path}: {reason(error)}: {error.remedy}") from error
    if not secret.value:
        raise exits.Failure(f"{path}: nodes prove no secret yet; use `peercachectl secret use`")
    # Imported late: the libraries behind it take long to load.
    from peercached.routers.token import token_of

    token = token_of(secret.value)
    if as_json:
        print_json({"token": token})
    else:
        click.echo(token)


def _secret_file(target: Target) -> Path:
    """As the daemon says, or the configuration if it was named or no daemon is there."""
    from peercached.admin.client import NoDaemon

    target.must_be_here("router-token reads a file")
    found, why = "", ""
    if target.config_file is None:
        try:
            with target.admin() as admin:
                setting = admin.config().settings.get("cluster_secret_file")
            if setting is None or not setting.value:
                raise exits.Failure(
                    "the daemon has no cluster_secret_file, so it wants no token; name FILE for "
                    "another cluster's secret"
                )
            found = str(setting.value)
        except NoDaemon as error:
            why = f" ({error})"
    found = found or target.secret_file()
    if not found:
        raise exits.Failure(
            f"neither a daemon nor a configuration says where the cluster secret is{why}: name "
            "FILE, mostly /etc/peercached/cluster.secret"
        )
    return Path(found)
