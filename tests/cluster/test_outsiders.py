"""A node that is in no view of the other members, or in a cluster that it began alone. Removals do
not reach it meanwhile, so it must confirm none and, where it knows this, accept no sets."""

from __future__ import annotations

from harness.clock import seconds
from harness.cluster import Daemon
from harness.fixtures import MakeCluster
from harness.pages import keys_of
from harness.versions import Versions
from harness.waiting import eventually

from peercache_client import Status
from peercached.admin.client import Unreachable
from peercached.membership.flapping import FREE_JOINS

KEYS = keys_of("set while it waits", 16)


def waits(daemon: Daemon) -> bool:
    try:
        health = daemon.status()["health"]
    except Unreachable:
        return False  # still starting
    return any("Not a member yet" in entry["sentence"] for entry in health)


def joined(daemon: Daemon, at: Daemon) -> bool:
    """Whether `at` has the present incarnation among its members, not an earlier one."""
    try:
        incarnation = daemon.status()["node"]["incarnation"]
    except Unreachable:
        return False
    members = at.status()["membership"]["members"]
    return incarnation in [member["incarnation"] for member in members]


def kill_until_out(daemon: Daemon, at: Daemon) -> None:
    """A node waits for twice its mean interval. So let that be longer than a start takes."""
    daemon.kill()
    eventually(lambda: daemon.node_id not in at.members(), 30)


def test_damped_node_confirms_no_removal_or_clear_until_admitted(make_cluster: MakeCluster) -> None:
    """Even if its own state names no other nodes."""
    nodes = make_cluster(3)
    a, _, c = nodes.daemons
    pages = a.attach()
    answers: set[Status] = set()
    cleared = True
    for number in range(3 * int(FREE_JOINS)):
        keys = keys_of(f"before {number}", 4)
        assert all(pages.set(keys))
        kill_until_out(c, at=a)
        c.lose_removal_state()
        c.start()
        eventually(lambda: waits(c) or joined(c, at=a), 60)
        if not waits(c):
            continue
        with Versions(c.socket_path) as at_c:
            answers = set(at_c.remove(keys, timeout_s=seconds(0.3)))
            cleared = at_c.clear()
        if waits(c):
            break
    # `deadline`: the machine was too busy for an answer. The removal is not confirmed either way.
    assert answers and answers <= {Status.removing, Status.deadline}
    assert not cleared
    nodes.wait_complete(60)
    eventually(lambda: not c.status()["removals"]["unsure"], 30)
    # The removal has ended with the clear, of which the members hear by heartbeats.
    eventually(lambda: not pages.has(keys), 10)


def test_damped_node_refuses_sets_until_admitted(make_cluster: MakeCluster) -> None:
    nodes = make_cluster(3)
    a, _, c = nodes.daemons
    pages, before = a.attach(), keys_of("before", 16)
    assert all(pages.set(before))
    answers: set[Status] = set()
    for _ in range(3 * int(FREE_JOINS)):
        kill_until_out(c, at=a)
        c.start()
        eventually(lambda: waits(c) or joined(c, at=a), 60)
        if not waits(c):
            continue
        pages = c.attach()
        answers = set(pages.set(KEYS))
        if waits(c):
            break
    assert answers == {Status.draining}
    nodes.wait_complete(60)
    eventually(lambda: all(pages.set(KEYS)))
    assert a.attach().has(KEYS)
    assert pages.has(before)


def test_former_master_alone_confirms_no_removal_while_members_are_silent(
    make_cluster: MakeCluster,
) -> None:
    """It remembers its last view, but has lost its state of removals. Since no master answers, it
    begins a cluster alone."""
    cluster = make_cluster(3)
    a, b, c = cluster.daemons
    pages = a.attach()
    assert all(pages.set(KEYS))
    c.kill()
    c.lose_removal_state()
    a.freeze()
    b.freeze()
    c.start()
    c.wait_ready(60)
    with Versions(c.socket_path) as at_c:
        answers = set(at_c.remove(KEYS, timeout_s=seconds(1.0)))
        cleared = at_c.clear()
    assert answers == {Status.removing}
    assert not cleared
    a.thaw()
    b.thaw()
    cluster.wait_complete(60)
    eventually(lambda: not c.status()["removals"]["unsure"], 30)
    # The removal has ended with the clear, of which the members hear by heartbeats.
    eventually(lambda: not any(pages.get(KEYS)), 10)
