"""Masters die, hang and return, all at once or one by one: no other member is removed."""

import time

from harness.background import Background
from harness.clock import seconds
from harness.cluster import Cluster, Daemon
from harness.directory import wait_settled
from harness.fixtures import TIMING, MakeCluster
from harness.pages import keys_of
from harness.steady_reader import SteadyReader
from harness.versions import Versions
from harness.waiting import eventually, moments

from peercache_client import Status

TTL_S = TIMING.member_ttl_s


def with_heads(cluster: Cluster, count: int) -> None:
    """Starts all daemons with the first `count` as heads."""
    heads = [daemon.address for daemon in cluster.daemons[:count]]
    for daemon in cluster.daemons:
        daemon.heads = heads
    cluster.start()


def masters(daemon: Daemon) -> list[str]:
    return [m["node_id"] for m in daemon.status()["membership"]["masters"]]


def test_a_dead_master_is_replaced_and_comes_back_to_its_place(make_hosts: MakeCluster) -> None:
    cluster = make_hosts(4, start=False)
    with_heads(cluster, 1)
    assert masters(cluster[3]) == ["a", "b", "c"]
    keys = keys_of("outlive the head", 32)
    assert all(cluster[1].attach().set(keys))
    cluster[0].kill()
    cluster.wait_complete()
    for daemon in cluster.daemons[1:]:
        assert masters(daemon) == ["b", "c", "d"]
        assert daemon.attach().has(keys)
    cluster.start_again(cluster[0])
    eventually(lambda: all(masters(d) == ["a", "b", "c"] for d in cluster.daemons))
    assert len({daemon.view() for daemon in cluster.daemons}) == 1


def test_a_node_can_join_while_the_configured_head_is_dead(make_hosts: MakeCluster) -> None:
    """It knows the others from its last view. A new node has none (see the next test)."""
    cluster = make_hosts(3, start=False)
    with_heads(cluster, 1)
    cluster[2].stop()
    cluster[0].kill()
    cluster[2].start()
    eventually(lambda: cluster[2].alive and _answers(cluster[2], ["b", "c"]), 20)
    keys = keys_of("without a head", 16)
    assert all(cluster[2].attach().set(keys))
    eventually(lambda: cluster[1].attach().has(keys), 10)


def test_new_node_beside_dead_heads_serves_itself_and_joins_when_one_returns(
    make_hosts: MakeCluster,
) -> None:
    """No node that it knows of is alive, though the others continue under new masters."""
    cluster = make_hosts(5, start=False)
    established, newcomer = cluster.daemons[:4], cluster[4]
    heads = [daemon.address for daemon in cluster.daemons[:2]]
    for daemon in cluster.daemons:
        daemon.heads = heads
    for daemon in established:
        daemon.start()
    cluster.wait_complete()
    theirs, own = keys_of("of the others", 32), keys_of("of the new node", 32)
    elsewhere = keys_of("removed by the new node", 4)
    assert all(cluster[2].attach().set(theirs + elsewhere))
    for daemon in cluster.daemons[:2]:
        daemon.kill()
    newcomer.start()
    newcomer.wait_ready(10)
    alone, other = newcomer.attach(timeout_s=1.0), cluster[3].attach()

    def waits_and_says_why() -> bool:
        said = newcomer.sentences()
        return "No head can be reached, so this node serves only its own pages" in said and all(
            head in said for head in heads
        )

    eventually(waits_and_says_why, 10)
    for daemon in established[2:]:
        daemon.wait_members(["c", "d"])
    with SteadyReader(other, theirs) as reading:
        for _ in moments(2 * TTL_S):
            assert all(alone.set(own))
            assert alone.has(own), "it serves its own pages"
            assert alone.client.batch_exists(own) == 32
            assert not any(alone.get(theirs))
            assert waits_and_says_why()
            assert newcomer.members() == ["e"]
        with Versions(newcomer.socket_path) as versions:
            answers = versions.remove(own[:1] + elsewhere, timeout_s=seconds(3.0))
        assert set(answers) == {Status.removing}, "it cannot ask the members"
        reading.check_whole("a new node waited beside dead heads")
    assert other.has(elsewhere)
    # Lookups in its own pool must not wait for the cluster, and absences are answered at once.
    alone.calls.check_none_waited()
    assert cluster[3].members() == ["c", "d"]

    cluster.start_again(cluster[1])
    assert newcomer.members() == ["b", "c", "d", "e"]
    assert alone.has(theirs)
    assert other.has(own[1:]), "what it set alone is found by all"
    eventually(lambda: not any(other.get(elsewhere + own[:1])))
    assert "No head can be reached" not in newcomer.sentences()


def test_a_node_of_another_cluster_at_a_lost_members_address_is_left_alone(
    make_hosts: MakeCluster,
) -> None:
    """Without a secret, a heartbeat there would join both clusters."""
    cluster = make_hosts(3, start=False)
    with_heads(cluster, 1)
    a, b, c = cluster.daemons
    b.kill()
    c.wait_members(["a", "c"])
    b.node_id, b.heads = "foreign", [b.address]  # the head of a cluster of its own
    b.start()
    b.wait_members(["foreign"])
    a.kill()
    eventually(lambda: c.members() == ["c"], 30)
    sent = c.status()["membership"]["heartbeats_sent"]
    # It asks the dead head and the address where b was.
    eventually(lambda: c.status()["membership"]["heartbeats_sent"] > sent + 8, 30)
    assert (c.members(), b.members()) == (["c"], ["foreign"])


def _answers(daemon: Daemon, members: list[str]) -> bool:
    try:
        return daemon.connected_members() == members
    except Exception:
        return False


def test_when_all_masters_die_the_others_go_on_and_take_over(make_hosts: MakeCluster) -> None:
    cluster = make_hosts(4, start=False, max_masters=2, directory_replicas=3)
    with_heads(cluster, 2)
    keys = keys_of("outlive all masters", 32)
    assert all(cluster[2].attach().set(keys))
    before = cluster[3].members()
    reader = cluster[3].attach()
    # The last answered heartbeat may be one interval older than the masters' death.
    nobody_acts_s = TIMING.takeover_after_s - TIMING.heartbeat_interval_s
    earliest, said = time.monotonic() + nobody_acts_s, ""
    for daemon in cluster.daemons[:2]:
        daemon.kill()

    def others_have_taken_over() -> bool:
        nonlocal said
        assert reader.has(keys)
        said += cluster[3].sentences()
        asked_at, members = time.monotonic(), cluster[3].members()
        assert members == before or asked_at > earliest, "the last view holds for a while"
        assert {"c", "d"} <= set(members)
        return members == ["c", "d"]

    eventually(others_have_taken_over, 20)
    assert "No master can be reached" in said
    cluster.wait_complete()
    assert masters(cluster[3]) == ["c", "d"]
    assert reader.has(keys)
    for daemon in cluster.daemons[:2]:
        daemon.start()
    cluster.wait_complete()
    eventually(lambda: masters(cluster[3]) == ["a", "b"])
    assert reader.has(keys)


def test_frozen_master_removes_nobody_while_frozen_or_after_thawing(
    make_hosts: MakeCluster,
) -> None:
    cluster = make_hosts(4, start=False, rpc_timeout_ms=20_000)
    with_heads(cluster, 2)
    keys = keys_of("beside a frozen master", 32)
    assert all(cluster[2].attach().set(keys))
    reader = cluster[3].attach(timeout_s=10.0)
    others = cluster.daemons[1:]
    cluster[0].freeze()
    try:
        eventually(lambda: all(d.members() == ["b", "c", "d"] for d in others), 20)
        steady = {daemon.view() for daemon in others}
        for _ in moments(3 * TTL_S):
            assert reader.has(keys)
            assert {daemon.view() for daemon in others} == steady, "the view flaps"
    finally:
        cluster[0].thaw()
    for _ in moments(2 * TTL_S):
        for daemon in others:
            assert {"b", "c", "d"} <= set(daemon.members()), "the awakened threw some out"
    cluster.wait_complete()
    assert reader.has(keys)
    reader.calls.check_none_waited()


def test_a_node_that_ends_is_out_of_the_view_at_once(make_hosts: MakeCluster) -> None:
    cluster = make_hosts(3, member_ttl_s=20.0)
    for victim in (2, 0):  # the second time the head
        assert cluster[victim].stop() == 0
        left = [d for d in cluster.daemons if d.alive]
        expected = [d.node_id for d in left]
        eventually(lambda: all(d.members() == expected for d in left), 5)  # noqa: B023


def test_a_rolling_restart_of_all_nodes_loses_no_page_of_the_others(
    make_hosts: MakeCluster,
) -> None:
    cluster = make_hosts(3, start=False)
    with_heads(cluster, 2)
    for place, daemon in enumerate(cluster.daemons):
        witness = cluster[(place + 1) % 3].attach()
        keys = keys_of(f"held beside {daemon.node_id}", 32)
        assert all(cluster[(place + 2) % 3].attach().set(keys))
        missed: list[int] = []

        def read() -> None:
            missed.append(32 - sum(map(bool, witness.get(keys))))  # noqa: B023

        with Background(read) as reading:
            reading.wait_rounds(3)
            assert daemon.stop() == 0
            wait_settled(cluster.daemons)
            reading.wait_rounds(3)
            daemon.start()
            wait_settled(cluster.daemons)
            reading.wait_rounds(3)
        assert sum(missed) == 0, f"while {daemon.node_id} restarted"
    assert len({daemon.view() for daemon in cluster.daemons}) == 1


def test_a_whole_cluster_restarts_without_its_head(make_hosts: MakeCluster) -> None:
    cluster = make_hosts(4, start=False)
    with_heads(cluster, 1)
    number = cluster[1].view()[0]
    for daemon in cluster.daemons:
        daemon.kill()
    for daemon in cluster.daemons[1:]:
        daemon.start()
    cluster.wait_complete()
    assert masters(cluster[3]) == ["b", "c", "d"]
    assert cluster[3].view()[0] > number
    cluster.start_again(cluster[0])
    assert len({daemon.view() for daemon in cluster.daemons}) == 1
