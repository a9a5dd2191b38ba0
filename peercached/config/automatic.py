"""The defaults that depend on the host, as plain values. Those of `host` are in own_host.py: they
may need the resolver."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping

from peercache_client.socket_path import default_socket_path
from peercached.config.paths import admin_socket_of, default_state_dir
from peercached.config.private import WORKERS_GROUP
from peercached.config.problem import Problem
from peercached.config.schema import Config
from peercached.config.values import check_node_id, group_number


def fill(
    config: Config, environment: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, str], list[Problem]]:
    """(values found, the source of each, problems for those not found)."""
    found: dict[str, str] = {}
    how: dict[str, str] = {}
    problems: list[Problem] = []
    if not config.node_id:
        name = socket.gethostname()
        try:
            found["node_id"] = check_node_id(name)
            how["node_id"] = "default: the host name"
        except ValueError:
            problems.append(
                Problem("node_id", f"the host name {name!r} cannot be one", "set node_id")
            )
        if not name:
            problems.append(Problem("node_id", "this host has no name", "set node_id"))
    socket_path = config.socket_path
    if not socket_path:
        socket_path = found["socket_path"] = default_socket_path(environment)
        why = "root" if os.geteuid() == 0 else "this user"
        how["socket_path"] = f"default: the folder for {why}"
    if not config.admin_socket:
        found["admin_socket"] = admin_socket_of(socket_path)
        how["admin_socket"] = "default: in a folder beside that of socket_path"
    if not config.socket_group and _may_give_to_workers():
        found["socket_group"] = WORKERS_GROUP
        how["socket_group"] = "default: the group of the package"
    if not config.state_dir and (state_dir := default_state_dir()):
        found["state_dir"] = state_dir
        how["state_dir"] = "default: the folder of the package"
    return found, how, problems


def _may_give_to_workers() -> bool:
    """Whether this process may give a socket to the workers' group."""
    try:
        group = group_number(WORKERS_GROUP)
    except ValueError:
        return False
    return os.geteuid() == 0 or group in (os.getegid(), *os.getgroups())
