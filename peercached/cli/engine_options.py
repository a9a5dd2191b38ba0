"""Shared parts of the commands that print options for an engine's launch line."""

from __future__ import annotations

from pathlib import Path

import click

from peercached.cli.connection import Target


def socket_path_for(engine: str, target: Target) -> str:
    """The running daemon's socket. Without a daemon, its future socket: the engine may start
    first."""
    from peercached.admin.client import Refused, Unreachable
    from peercached.cli.exits import USAGE, Failure

    expected = _absolute(target.socket_path())
    try:
        with target.admin() as admin:
            node = admin.status().node
    except (Unreachable, Refused) as error:
        click.echo(
            f"peercachectl: {error}\n{engine} starts all the same, and shares pages as soon as a "
            f"daemon listens at {expected}.",
            err=True,
        )
        return expected
    if node.role == "memory":
        raise Failure(f"{node.id} serves no engines: its role is memory", USAGE)
    return expected if target.socket or not node.socket_path else _absolute(node.socket_path)


def must_be_text(name: str, text: str) -> None:
    """Raises Failure for text that an engine would refuse at its start."""
    from peercache_client.identity import check_text
    from peercached.cli.exits import USAGE, Failure

    try:
        check_text(name, text)
    except ValueError as error:
        raise Failure(str(error), USAGE) from error


def _absolute(path: str) -> str:
    absolute = str(Path(path).absolute())
    must_be_text("the daemon's socket_path", absolute)
    return absolute
