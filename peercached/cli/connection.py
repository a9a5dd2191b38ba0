"""Finds the daemon that a peercachectl command talks to."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from peercached.cli.file_option import file_option
from peercached.cli.number import Number

if TYPE_CHECKING:
    from peercache_client import Client
    from peercached.admin.client import AdminClient

TIMEOUT_S = 5.0

_Command = TypeVar("_Command", bound=Callable[..., Any])


@dataclass(frozen=True)
class Target:
    """The daemon's location, as given on the command line."""

    socket: str = ""
    admin_socket: str = ""
    config_file: Path | None = None
    timeout_s: float = 0.0
    node: str = ""  # the member to ask, through the daemon of this host

    def over(self, before: Target) -> Target:
        """Merges options after the command's name with those before it. The later ones win."""
        return replace(
            before,
            **{name: value for name, value in vars(self).items() if value},
        )

    def within(self, left_s: float) -> Target:
        """The same with at most this time for an answer, but 0.2 s at least."""
        return replace(self, timeout_s=min(self.timeout_s or TIMEOUT_S, max(round(left_s, 1), 0.2)))

    def socket_path(self) -> str:
        """The workers' socket."""
        from peercache_client.socket_path import existing_socket_path

        return self.socket or self._configured("socket_path") or existing_socket_path(os.environ)

    def admin_path(self) -> str:
        """The admin socket: as given, else as configured, else in the default folder."""
        from peercached.config.paths import admin_socket_of

        if self.admin_socket:
            return self.admin_socket
        if not self.socket and (configured := self._configured("admin_socket")):
            return configured
        return admin_socket_of(self.socket_path())

    def secret_file(self) -> str:
        """The cluster secret's file, as configured; empty: none."""
        return self._configured("cluster_secret_file")

    def admin(self) -> AdminClient:
        """A connection to the admin socket. Unreachable if there is none."""
        from peercached.admin.client import AdminClient

        return AdminClient(self.admin_path(), self.timeout_s or TIMEOUT_S, self.node)

    def worker(self, namespace: str) -> Client:
        """A worker's client. Raises Unreachable if no daemon listens, where Client would return
        misses."""
        from peercached.admin.client import check_socket

        self.must_be_here("pages go through the workers' socket")
        path = self.socket_path()
        check_socket(path, "socket", "socket_path")
        from peercache_client import Client

        return Client(path, namespace=namespace, timeout_s=self.timeout_s or TIMEOUT_S)

    def must_be_here(self, why: str) -> None:
        """Raises Failure if --node names another node."""
        if self.node:
            from peercached.cli.exits import USAGE, Failure

            raise Failure(f"--node {self.node}: {why} of this host; run it on that node", USAGE)

    def _configured(self, key: str) -> str:
        from peercached.config.load import gather

        # Read only the sockets, unchecked: a pool size that no longer fits must not keep an
        # operator from asking the running daemon.
        given, _ = gather(self.config_file, os.environ, {})
        return str(given[key].value) if key in given else ""


def target_options(command: _Command) -> _Command:
    """`--socket`, `--admin-socket`, `--config`, `--timeout`, `--node`. They may stand before or
    after the command's name."""
    for option in (
        click.option(
            "--node",
            metavar="NAME",
            help="Another member, which the daemon of this host asks.",
        ),
        click.option(
            "--timeout",
            "timeout_s",
            type=Number(min=0.001, max=3600),
            metavar="SECONDS",
            help=f"How long to wait for the daemon. Default: {TIMEOUT_S:g} "
            "(`clear`: 15, `wait`: 60).",
        ),
        file_option,
        click.option("--admin-socket", metavar="PATH", help="The daemon's admin_socket."),
        click.option("--socket", metavar="PATH", help="The daemon's socket_path."),
    ):
        command = option(command)
    return command


def target_from(options: dict[str, Any]) -> Target:
    """Removes the options of `target_options` from a command's parameters, and returns the
    Target."""
    given = {field.name: options.pop(field.name, None) for field in fields(Target)}
    return Target(**{name: value for name, value in given.items() if value is not None})
