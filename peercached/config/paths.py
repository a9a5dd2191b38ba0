"""Default paths of the daemon. Those of its sockets are in peercache_client/socket_path.py."""

from __future__ import annotations

import os
from pathlib import Path

SOCKET_PATH_BYTES_MAX = 107  # size of sun_path without the final zero
_STATE = Path("/var/lib/peercached")


def default_state_dir() -> str:
    """Empty if this user cannot write there. Packages create the folder, the daemon does not."""
    return str(_STATE) if os.access(_STATE, os.W_OK) else ""


def admin_socket_of(socket_path: str) -> str:
    """`x.sock` -> `x.admin.sock`."""
    return socket_path.removesuffix(".sock") + ".admin.sock"
