"""Signs of life between real daemons (peercached/membership/signs.py)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from harness.cluster import Daemon
from harness.directory import wait_settled
from harness.fixtures import MakeCluster
from harness.hang import hung_main_thread
from harness.waiting import eventually

SIGNS = 30


def counted(daemon: Daemon) -> tuple[int, int]:
    """Counts of heartbeats sent and signs received."""
    found = daemon.status()["membership"]
    return found["heartbeats_sent"], found["signs_counted"]


def has_counted(daemon: Daemon, signs: int) -> bool:
    return counted(daemon)[1] >= signs


def has_members(daemon: Daemon, count: int) -> bool:
    return len(daemon.members()) == count


def test_nodes_at_rest_send_few_heartbeats(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(4)
    wait_settled(cluster.daemons)
    for daemon in cluster.daemons:
        beats, signs = counted(daemon)
        eventually(partial(has_counted, daemon, signs + SIGNS))
        assert counted(daemon)[0] - beats < SIGNS / 2


def test_master_with_hung_control_plane_is_replaced_despite_native_threads(
    make_cluster: MakeCluster,
) -> None:
    cluster = make_cluster(3, max_masters=1)
    wait_settled(cluster.daemons)
    hang_and_return(cluster.daemons, victim=0)


def test_member_with_hung_control_plane_is_removed_despite_native_threads(
    make_cluster: MakeCluster,
) -> None:
    """Without expiry of signs the removal would take 3.5 TTL, until a heartbeat is overdue."""
    cluster = make_cluster(3, max_masters=1, member_ttl_s=4)
    wait_settled(cluster.daemons)
    beats, _ = counted(cluster[2])
    eventually(lambda: counted(cluster[2])[0] > beats, 20, "its next heartbeat")
    hang_and_return(cluster.daemons, victim=2, within_s=9)


def hang_and_return(daemons: Sequence[Daemon], victim: int, within_s: float = 10.0) -> None:
    others = [daemon for place, daemon in enumerate(daemons) if place != victim]
    with hung_main_thread(daemons[victim].pid):
        for daemon in others:
            eventually(partial(has_members, daemon, 2), within_s, "it is out")
            assert daemons[victim].node_id not in daemon.members()
    for daemon in daemons:
        eventually(partial(has_members, daemon, 3), what="it is back")
