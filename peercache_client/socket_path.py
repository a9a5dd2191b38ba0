"""Where the daemon of this host listens, if nobody says."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final

SYSTEM_FOLDER: Final = Path("/run/peercached")
_NAME: Final = "peercached.sock"


def user_folder(environment: Mapping[str, str]) -> Path:
    """This user's folder for sockets: $XDG_RUNTIME_DIR, else in /tmp."""
    runtime = environment.get("XDG_RUNTIME_DIR", "")
    if runtime.startswith("/"):
        return Path(runtime) / "peercached"
    return Path(f"/tmp/peercached-{os.geteuid()}")


def default_socket_path(environment: Mapping[str, str]) -> str:
    """The default socket path of a daemon of this user."""
    if os.geteuid() == 0 or os.access(SYSTEM_FOLDER, os.W_OK):
        return str(SYSTEM_FOLDER / _NAME)
    return str(user_folder(environment) / _NAME)


def existing_socket_path(environment: Mapping[str, str]) -> str:
    """The socket that a client of this user should try.

    The user's own socket comes first, because a user who starts a daemon wants to use it. It counts
    only in a folder that nobody else can write: /tmp is open to all. Else it is the system's, if
    packages have made its folder, or if the folder is closed to this user: then the client reports
    the missing permission, and does not claim that no daemon runs.
    """
    own = user_folder(environment)
    if _is_private(own) and (own / _NAME).exists():
        return str(own / _NAME)
    try:
        there = SYSTEM_FOLDER.exists()
    except PermissionError:
        there = True
    return str(SYSTEM_FOLDER / _NAME) if there else default_socket_path(environment)


def _is_private(folder: Path) -> bool:
    """Whether it is a folder of this user that no other user can write."""
    try:
        status = folder.lstat()
    except OSError:
        return False
    mine = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()
    return mine and not status.st_mode & 0o022
