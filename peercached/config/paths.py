"""The default paths of the sockets."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

SOCKET_PATH_BYTES_MAX = 107  # size of sun_path without the final zero
_SYSTEM = Path("/run/peercached")
_NAME = "peercached.sock"
_STATE = Path("/var/lib/peercached")


def user_folder(environment: Mapping[str, str]) -> Path:
    """This user's folder for sockets: $XDG_RUNTIME_DIR, else in /tmp."""
    runtime = environment.get("XDG_RUNTIME_DIR", "")
    if runtime.startswith("/"):
        return Path(runtime) / "peercached"
    return Path(f"/tmp/peercached-{os.geteuid()}")


def default_socket_path(environment: Mapping[str, str]) -> str:
    """The default socket path of a daemon of this user."""
    if os.geteuid() == 0 or os.access(_SYSTEM, os.W_OK):
        return str(_SYSTEM / _NAME)
    return str(user_folder(environment) / _NAME)


def default_state_dir() -> str:
    """Empty if this user cannot write there. Packages create the folder, the daemon does not."""
    return str(_STATE) if os.access(_STATE, os.W_OK) else ""


def existing_socket_path(environment: Mapping[str, str]) -> str:
    """The socket that a client of this user should try: the first that exists.

    The user's own socket comes first, because a user who starts a daemon wants to use it. If the
    system's folder is closed to this user, its socket counts as existing. The client then reports
    the missing permission, and does not claim that no daemon runs.
    """
    own = user_folder(environment) / _NAME
    if os.path.exists(own):  # noqa: PTH110 - False where a folder is closed: Path.exists() raises
        return str(own)
    try:
        there = (_SYSTEM / _NAME).exists()
    except PermissionError:
        there = True
    return str(_SYSTEM / _NAME) if there else default_socket_path(environment)


def admin_socket_of(socket_path: str) -> str:
    """`x.sock` -> `x.admin.sock`."""
    return socket_path.removesuffix(".sock") + ".admin.sock"
