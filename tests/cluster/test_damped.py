"""A node that has come and gone too often waits until the others take it in. Their removals do not
reach it meanwhile, so nothing may be set there."""

from __future__ import annotations

from harness.clock import seconds
from harness.fixtures import Attach, MakeCluster
from harness.pages import keys_of
from harness.versions import Versions
from harness.waiting import eventually

from peercache_client import Status
from peercached.admin.client import Unreachable
from peercached.demo.cluster import Daemon
from peercached.membership.flapping import FREE_JOINS

KEYS = keys_of("set while it waits", 16)


def waits(daemon: Daemon) -> bool:
    try:
        health = daemon.status()["health"]
    except Unreachable:
        return False  # it starts
    return any("Not a member yet" in entry["sentence"] for entry in health)


def joined(daemon: Daemon, at: Daemon) -> bool:
    """This start of it, not the one before."""
    try:
        incarnation = daemon.status()["node"]["incarnation"]
    except Unreachable:
        return False
    members = at.status()["membership"]["members"]
    return incarnation in [member["incarnation"] for member in members]


def without_a_memory(daemon: Daemon) -> None:
    for file in daemon.state_dir.glob(f"removals-{daemon.node_id}.*"):
        file.unlink()


def test_damped_node_confirms_no_removal_or_clear_until_admitted(
    make_cluster: MakeCluster, attach: Attach
) -> None:
    """Even if it knows of no others by itself."""
    nodes = make_cluster(3)
    a, _, c = nodes.daemons
    pages = attach(a)
    answers: set[Status] = set()
    cleared = True
    for number in range(3 * int(FREE_JOINS)):
        keys = keys_of(f"before {number}", 4)
        assert all(pages.set(keys))
        c.kill()
        without_a_memory(c)
        c.start()
        eventually(lambda: waits(c) or joined(c, at=a), 60)
        if not waits(c):
            continue
        with Versions(c.socket_path) as at_c:
            answers = set(at_c.remove(keys, timeout_s=seconds(1.0)))
            cleared = at_c.clear()
        if waits(c):
            break
    assert answers == {Status.removing}
    assert not cleared
    nodes.wait_complete(60)
    eventually(lambda: not c.status()["removals"]["unsure"], 30)
    assert not pages.has(keys)


def test_damped_node_refuses_sets_until_admitted(make_cluster: MakeCluster, attach: Attach) -> None:
    nodes = make_cluster(3)
    a, _, c = nodes.daemons
    pages, before = attach(a), keys_of("before", 16)
    assert all(pages.set(before))
    answers: set[Status] = set()
    for _ in range(
        3 * int(FREE_JOINS)
    ):  # each join makes it wait longer: in the end, longer than it takes to start
        c.kill()
        c.start()
        eventually(lambda: waits(c) or joined(c, at=a), 60)
        if not waits(c):
            continue
        pages = attach(c)
        answers = set(pages.set(KEYS))
        if waits(c):
            break
    assert answers == {Status.draining}
    nodes.wait_complete(60)
    eventually(lambda: all(pages.set(KEYS)))
    assert attach(a).has(KEYS)
    assert pages.has(before)
