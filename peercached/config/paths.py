"""Default paths of the daemon. peercache_client/socket_path.py has that of the workers' socket."""

from __future__ import annotations

import os
from pathlib import Path

SOCKET_PATH_BYTES_MAX = 107  # size of sun_path without the final zero
_STATE = Path("/var/lib/peercached")


def default_state_dir() -> str:
    """Empty if this user cannot write there. Packages create the folder, the daemon does not."""
    return str(_STATE) if os.access(_STATE, os.W_OK) else ""


def admin_socket_of(socket_path: str) -> str:
    """`/run/peercached/x.sock` -> `/run/peercached-admin/x.sock`. Engines' containers mount the
    folder of the workers' socket, some of them as root: so the admin socket is never in it."""
    folder, name = os.path.split(os.path.abspath(socket_path))  # noqa: PTH100 - of no file yet
    return f"{folder}-admin/{name}"


def may_make(file: str) -> bool:
    """Whether this user may make the file, and the folders that it still needs."""
    folder = Path(file).parent
    while not os.access(folder, os.F_OK):
        folder = folder.parent
    return folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)
