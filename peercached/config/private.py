"""The users, beside the daemon's, that may open its private files and its admin socket."""

from __future__ import annotations

import grp
import pwd
import stat
from pathlib import Path

from peercached.config.schema import Config
from peercached.config.values import group_number

# Made by the packages. The daemon's user is the only member of its group. The users of engines are
# in the other one, which opens the workers' socket and nothing else.
DAEMON_GROUP = "peercached"
WORKERS_GROUP = "peercached-workers"
# The keys that name private files: with them a process can be a member of the cluster.
PRIVATE_KEYS = ("cluster_secret_file", "tls_key")


def remedy(path: Path) -> str:
    """The remedy for a private file that others may read."""
    return f"give it to the daemon's user (chown), and chmod 600 {path}"


def open_to_others(folder: Path) -> int:
    """The mode of a folder that its group or other users may use; 0: they may not, or it is not
    there."""
    try:
        mode = stat.S_IMODE(folder.stat().st_mode)
    except OSError:
        return 0
    return mode if mode & 0o077 else 0


def readers(config: Config, user: int) -> dict[str, str]:
    """The keys of private files that somebody beside root and the uid `user` may read, and who."""
    groups = [config.socket_group] * bool(config.socket_group) + config.worker_groups
    workers = [group_number(name) for name in groups]
    found = {}
    for key in PRIVATE_KEYS:
        group = reading_group(getattr(config, key))
        if group is None:
            continue
        if others := others_in(group, user) or ["the workers"] * (group in workers):
            found[key] = f"{', '.join(others)}, through the group {group_name(group)}"
    return found


def reading_group(path: str) -> int | None:
    """The gid of the group that may read the file; None: none, or there is no such file."""
    try:
        status = Path(path).stat() if path else None
    except OSError:
        return None
    return status.st_gid if status and status.st_mode & stat.S_IRGRP else None


def others_in(group: int, user: int) -> list[str]:
    """The members of a group beside root and the uid `user`."""
    try:
        members = grp.getgrgid(group).gr_mem
    except KeyError:
        return []
    return sorted(set(members) - {"root", user_name(user)})


def user_name(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def group_name(number: int) -> str:
    try:
        return grp.getgrgid(number).gr_name
    except KeyError:
        return str(number)
