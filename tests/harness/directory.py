"""Waits until the owners of the directory know their records."""

from collections.abc import Sequence

from harness.cluster import Daemon
from harness.waiting import eventually
from peercached.admin.client import AdminClient


def final(daemon: Daemon) -> bool:
    """Whether the daemon says "not here" only of pages that no node has."""
    with AdminClient(str(daemon.admin_path)) as admin:
        return admin.ring().final


def wait_settled(daemons: Sequence[Daemon], within_s: float = 40.0) -> None:
    """Waits until the live daemons have one view of exactly themselves, and each knows all records
    that it owns. `within_s` limits each wait, in seconds of the reference machine."""
    live = [daemon for daemon in daemons if daemon.alive]
    for daemon in live:
        daemon.wait_members([each.node_id for each in live], within_s)
    eventually(lambda: all(map(final, live)), within_s, "all owners know their records")
