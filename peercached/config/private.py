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
# The keys that name private files, and what other users can do with them.
PRIVATE_KEYS = {
    "cluster_secret_file": "join as members",
    "tls_key": "join as members",
    "cold_key_file": "read and plant pages of the object store",
}


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


class Readers:
    """Finds users, beside root and the uid `user`, that may read private files.

    Each group is looked up once: with LDAP a lookup may block or fail, and the daemon asks on its
    event loop. A change of a group's members is seen after a restart."""

    def __init__(self, config: Config, user: int) -> None:
        """Looks up the groups of the files as they are now. ValueError if a group of the
        configuration is unknown."""
        self._config = config
        self._user = user
        groups = [config.socket_group] * bool(config.socket_group) + config.worker_groups
        self._workers = {group_number(name) for name in groups}
        self._known: dict[int, str] = {}  # by gid; empty: nobody
        self.now()

    def now(self) -> dict[str, str]:
        """The keys of files that somebody may read, and who."""
        found = {}
        for key in PRIVATE_KEYS:
            group = reading_group(getattr(self._config, key))
            if group is not None and (who := self._who(group)):
                found[key] = who
        return found

    def _who(self, group: int) -> str:
        if group not in self._known:
            others = others_in(group, self._user) or ["the workers"] * (group in self._workers)
            through = f", through the group {group_name(group)}"
            self._known[group] = ", ".join(others) + through if others else ""
        return self._known[group]


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
