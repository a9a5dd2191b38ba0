"""Drains of daemons, as `peercachectl drain` asks for them."""

from typing import Any

from harness.waiting import eventually
from peercached.admin.client import AdminClient
from peercached.demo.cluster import Daemon

# Of pages, for a drain that is not to stop early.
ALL_BYTES = 1 << 40
FINAL = ("drained", "left")


def drain(
    daemon: Daemon, bytes_max: int = ALL_BYTES, seconds: float = 60, stay: bool = False
) -> dict[str, Any]:
    """Drains and waits for the end; the status document's `drain`."""
    with AdminClient(str(daemon.admin_path)) as admin:
        admin.drain(bytes_max, seconds, stay)
    eventually(lambda: daemon.status()["drain"]["state"] in FINAL, seconds + 30)
    result: dict[str, Any] = daemon.status()["drain"]
    return result
