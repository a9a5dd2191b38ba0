"""What owners of the directory know."""

from collections.abc import Sequence

from harness.waiting import eventually
from peercached.admin.client import AdminClient
from peercached.demo.cluster import Daemon


def final(daemon: Daemon) -> bool:
    """It says "not here" only of what is nowhere."""
    with AdminClient(str(daemon.admin_path)) as admin:
        return admin.ring().final


def wait_settled(daemons: Sequence[Daemon]) -> None:
    """Until these have one view of exactly themselves, and each knows all records that it owns."""
    for daemon in daemons:
        daemon.wait_members([each.node_id for each in daemons], 40)
    eventually(lambda: all(map(final, daemons)), 40, "all owners know their records")
