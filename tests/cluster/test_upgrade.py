"""Daemons of two releases in one cluster, as during an upgrade node by node."""

from __future__ import annotations

import sys

from harness.cluster import Daemon
from harness.fixtures import MakeCluster
from harness.pages import keys_of
from harness.versions import Versions
from harness.waiting import eventually

from peercache_client import Status
from peercached.peer.rpc.auth import PROTOCOL_VERSION

# A daemon of a later release: it speaks the next protocol, and the ones from `oldest` on.
_LATER = """
import runpy, sys
import peercached.peer.rpc.auth as auth
auth.PROTOCOL_VERSION, auth.PROTOCOL_OLDEST = {newest}, {oldest}
sys.argv = sys.argv[3:]
runpy.run_module("peercache_bench.process", run_name="__main__", alter_sys=True)
"""


def of_a_later_release(daemon: Daemon, oldest: int) -> None:
    script = _LATER.format(newest=PROTOCOL_VERSION + 1, oldest=oldest)
    daemon.launcher = [sys.executable, "-c", script]


def test_cluster_is_upgraded_node_by_node(make_cluster: MakeCluster) -> None:
    nodes = make_cluster(3)
    keys = keys_of("of the older release", 32)
    assert all(nodes[1].attach().set(keys))
    for daemon in (nodes[0], nodes[2]):
        daemon.stop()
        of_a_later_release(daemon, oldest=PROTOCOL_VERSION)
        nodes.start_again(daemon)
        later = keys_of(f"of the later release at {daemon.node_id}", 32)
        assert all(daemon.attach().set(later))
        for reader in nodes.daemons:
            assert reader.attach().has(keys)
            assert reader.attach().has(later)
    with Versions(nodes[2].socket_path) as versions:
        assert set(versions.remove(keys)) == {Status.ok}
    assert not any(nodes[1].attach().get(keys))


def test_releases_without_a_common_protocol_name_both(make_cluster: MakeCluster) -> None:
    nodes = make_cluster(2, start=False)
    nodes[0].start()
    of_a_later_release(nodes[1], oldest=PROTOCOL_VERSION + 1)
    nodes[1].start()
    said = f"one node speaks protocol {PROTOCOL_VERSION + 1}, the other one {PROTOCOL_VERSION} to"
    eventually(lambda: said in nodes[0].log_text(), 20)
    eventually(lambda: said in nodes[1].log_text(), 20)
    assert nodes[0].members() == ["a"]
