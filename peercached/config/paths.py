"""Where the sockets are when nobody says otherwise."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

SOCKET_PATH_BYTES_MAX = 107  # sun_path, less its end
_SYSTEM = Path("/run/peercached")
_NAME = "peercached.sock"
_STATE = Path("/var/lib/peercached")


def user_folder(environment: Mapping[str, str]) -> Path:
    """This user's own folder for sockets; the kernel's or the login manager's, else in /tmp."""
    runtime = environment.get("XDG_RUNTIME_DIR", "")
    if runtime.startswith("/"):
        return Path(runtime) / "peercached"
    return Path(f"/tmp/peercached-{os.geteuid()}")


def default_socket_path(environment: Mapping[str, str]) -> str:
    """Where a daemon of this user listens."""
    if os.geteuid() == 0 or os.access(_SYSTEM, os.W_OK):
        return str(_SYSTEM / _NAME)
    return str(user_folder(environment) / _NAME)


def default_state_dir() -> str:
    """Empty when this user has none: packages make the folder, the daemon does not."""
    return str(_STATE) if os.access(_STATE, os.W_OK) else ""


def existing_socket_path(environment: Mapping[str, str]) -> str:
    """Where a client of this user should look: the first socket that is there.

    The user's own comes first, since the one who started it means it. The system's counts as there
    when its folder is closed to this user: who asks for it is told that, and not that none runs.
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
