"""Whole clusters of the membership state machine in virtual time, by seed."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from peercached.membership import State, Timing, View
from sim.chaos import chaos
from sim.flaps import FLAPS, flap, views_of_others
from sim.members import TIMING, Members, Node
from sim.seeds import some

TTL = TIMING.member_ttl_s
DETECTION_S = TTL + 3 * TIMING.call_deadline_s


def formed(nodes: int, heads: int = 1, seed: int = 1, **more: float) -> Members:
    cluster = Members(seed, nodes, heads, **more)  # type: ignore[arg-type]
    cluster.until_agreed(10.0)
    cluster.run(2.0)
    return cluster


def masters(cluster: Members) -> set[tuple[str, ...]]:
    return {
        tuple(m.node_id for m in node.membership.masters(node.clock))
        for node in cluster.nodes.values()
    }


def members(view: View) -> list[str]:
    return [m.node_id for m in view.members]


def never(cluster: Members, seconds: float, wrong: Callable[[], bool], what: str) -> None:
    until = cluster.net.now + seconds
    while cluster.net.now < until:
        cluster.run(0.1)
        assert not wrong(), what


@pytest.mark.parametrize("seed", some(20, 100))
def test_members_converge_and_stay_stable_after_random_faults(seed: int) -> None:
    chaos(seed)


def test_masters_are_the_heads_in_order_then_others_by_name() -> None:
    assert masters(formed(6, heads=2)) == {("n0000", "n0001", "n0002")}


def test_a_master_that_dies_is_replaced_and_gets_its_place_back() -> None:
    cluster = formed(6, heads=2)
    cluster.crash("n0000")
    cluster.until_agreed(DETECTION_S)
    assert masters(cluster) == {("n0001", "n0002", "n0003")}
    cluster.start("n0000", cold=True)
    cluster.until_agreed(5.0)
    assert masters(cluster) == {("n0000", "n0001", "n0002")}


@pytest.mark.parametrize("heads", [1, 3])
def test_draining_masters_still_detect_deaths_and_admit_newcomers(
    heads: int,
) -> None:
    cluster = formed(3, heads=heads)
    for node in cluster.nodes.values():
        node.run(node.beats.announce_drain)
    cluster.run(6 * TTL)
    assert masters(cluster) == {("n0000", "n0001", "n0002")}, cluster.describe()
    cluster.crash("n0000")
    cluster.until_agreed(6 * TTL)
    cluster.start("n0000", cold=True)
    cluster.until_agreed(6 * TTL)
    cluster.run(2.0)
    assert masters(cluster) == {("n0000",)}, "the one that stays"


@pytest.mark.parametrize("max_masters", [1, 3])
def test_when_all_masters_die_the_others_go_on_and_then_take_over(max_masters: int) -> None:
    """With one master, the next two in the order die with it."""
    cluster = Members(3, 9, heads=max_masters, max_masters=max_masters)
    cluster.until_agreed(10.0)
    views = {node.name: node.membership.view for node in cluster.nodes.values()}
    dead = cluster.names[:3]
    for name in dead:
        cluster.crash(name)
    cluster.run(2 * TTL)
    for node in cluster.nodes.values():
        assert node.membership.view == views[node.name], "with their last view"
    cluster.until_agreed(8 * TTL)
    for name in dead:
        cluster.start(name, cold=True)
    cluster.until_agreed(2 * TTL)


def test_one_hung_master_never_flaps_the_cluster() -> None:
    """In another system a seed node that accepted calls and never answered made the membership
    cycle for ever."""
    cluster = formed(9, heads=3)
    others = [name for name in cluster.names if name != "n0000"]
    cluster.nodes["n0000"].hung = True

    def somebody_else_is_out() -> bool:
        return any(
            not set(others) <= set(members(cluster.nodes[name].membership.view)) for name in others
        )

    before = cluster.changes
    never(cluster, 20 * TTL, somebody_else_is_out, "a hung master threw out others")
    assert cluster.changes - before == len(others), "one view, without the hung one"
    cluster.nodes["n0000"].resume()
    never(cluster, TTL, somebody_else_is_out, "a master that woke up threw out others")
    cluster.until_agreed(TTL)


@pytest.mark.parametrize("both_ways", [True, False])
def test_a_cut_between_one_master_and_one_node_removes_nobody(both_ways: bool) -> None:
    cluster = formed(7, heads=3)
    before = cluster.changes
    cluster.cut(["n0005"], ["n0000"], both_ways)
    cluster.run(20 * TTL)
    assert cluster.agreed()
    assert cluster.changes == before


def test_masters_that_cannot_see_each_other_still_have_one_view() -> None:
    cluster = formed(6, heads=2)
    cluster.cut(["n0000"], ["n0001"])
    cluster.crash("n0005")
    cluster.until_agreed(DETECTION_S + TTL)
    cluster.start("n0005")
    cluster.until_agreed(TTL)
    before = cluster.changes
    cluster.run(20 * TTL)
    assert cluster.agreed()
    assert cluster.changes == before, "views alternate"


def test_both_sides_of_a_partition_go_on_and_agree_when_they_meet() -> None:
    """tests/sim/test_meetings.py checks that no node loses members of its own part meanwhile."""
    cluster = formed(9, heads=2)
    small = ["n0000", "n0004"]
    large = [name for name in cluster.names if name not in small]
    cluster.cut(small, large)
    cluster.run(DETECTION_S + 1.0)
    for side in (small, large):
        for name in side:
            assert members(cluster.nodes[name].membership.view) == side
    cluster.net.cuts.clear()
    assert cluster.until_agreed(TTL) <= TTL
    before = cluster.changes
    cluster.run(3 * TTL)
    assert cluster.agreed()
    assert cluster.changes == before


def test_restarted_node_replaces_its_old_incarnation_at_once() -> None:
    cluster = formed(5)
    old = cluster.nodes["n0003"].address.incarnation
    cluster.crash("n0003")
    cluster.start("n0003")
    assert cluster.until_agreed(1.0) <= 1.0
    seen = {m.address.incarnation for m in cluster.nodes["n0001"].membership.view.members}
    assert old not in seen


def test_a_node_that_leaves_is_gone_at_once_even_the_only_master() -> None:
    for max_masters, name in ((3, "n0004"), (3, "n0000"), (1, "n0000")):
        cluster = Members(5, 5, max_masters=max_masters)
        cluster.until_agreed(10.0)
        cluster.run(1.0)
        cluster.leave(name)
        assert cluster.until_agreed(1.0) <= 1.0


@pytest.mark.parametrize("name", ["n0004", "n0000"])
def test_a_drain_is_seen_by_all_and_can_be_taken_back(name: str) -> None:
    cluster = formed(5)
    node = cluster.nodes[name]

    def seen() -> set[State]:
        return {n.membership.view.by_id[name].state for n in cluster.nodes.values()}

    node.run(node.beats.announce_drain)
    cluster.run(1.0)
    assert seen() == {State.LEAVING}
    assert all(name not in row for row in masters(cluster))
    node.run(node.beats.announce_stay)
    cluster.run(1.5)
    assert seen() == {State.ALIVE}
    assert cluster.agreed()


@pytest.mark.parametrize("name", ["n0004", "n0000"])
@pytest.mark.parametrize("up_s", [1.0, 4.0, 8.0])
def test_crash_looping_node_soon_stops_changing_the_view(name: str, up_s: float) -> None:
    cluster = formed(5, heads=2)
    watcher = cluster.nodes["n0001"]
    before = len(watcher.views)
    for _ in range(40):
        cluster.crash(name)
        cluster.run(0.5)
        cluster.start(name)
        cluster.run(up_s)
    damped = len(watcher.views) - before
    assert damped <= 12, f"{damped} views for 40 restarts"
    node = cluster.nodes[name]
    assert node.membership.view.number == 0
    assert any("too often" in link.problem for link in node.membership.links)
    assert cluster.until_agreed(6 * TTL) <= 6 * TTL, "it stays, and is let in soon"


@pytest.mark.parametrize("name", ["n0004", "n0000"])
def test_repeatedly_hanging_node_soon_stops_changing_the_view(name: str) -> None:
    cluster = formed(5, heads=2)
    watcher = cluster.nodes["n0001"]
    before = len(watcher.views)
    for _ in range(40):
        cluster.nodes[name].hung = True
        cluster.run(7.0)
        cluster.nodes[name].resume()
        cluster.run(3.0)
    damped = len(watcher.views) - before
    assert damped <= 16, f"{damped} views, of which a hang makes two, for 40 of them"
    assert cluster.until_agreed(6 * TTL) <= 6 * TTL, "it stays, and is let in soon"


@pytest.mark.parametrize("seed", some(1, 10))
def test_an_overloaded_cluster_learns_to_wait_and_stays_together(seed: int) -> None:
    """Every node stalls again and again, often for longer than the TTL."""
    cluster = formed(8, heads=3, seed=seed)
    rng = random.Random(seed)
    next_at = {name: cluster.net.now + rng.expovariate(0.25 / TTL) for name in cluster.names}
    apart = 0
    for _ in range(2400):
        cluster.run(0.5)
        for name, at in next_at.items():
            node = cluster.nodes[name]
            if cluster.net.now < at:
                continue
            next_at[name] = cluster.net.now + TTL * (
                rng.expovariate(0.25) if node.hung else rng.uniform(0.3, 1.6)
            )
            node.resume() if node.hung else setattr(node, "hung", True)
        apart += not cluster.agreed()
    views = cluster.changes / len(cluster.names)
    assert views < 50, "a hundred and more without patience"
    assert apart < 2400 / 8, "five sixths of the time without patience"


@pytest.mark.parametrize(
    ("period_ttl", "even"), [pytest.param(20.0, True, marks=pytest.mark.slow), (13.0, False)]
)
def test_regularly_restarting_node_soon_stops_changing_the_view(
    period_ttl: float, even: bool
) -> None:
    views, wait_s = views_of_others(1, period_ttl, even)
    assert views <= 16, f"{views} views for {FLAPS} restarts"
    assert wait_s <= TIMING.flap_wait_max_s + TTL, "it stays, and is let in"


def test_flapping_node_keeps_its_wait_when_a_master_is_replaced() -> None:
    cluster = formed(6, heads=2)
    flap(cluster, ["n0005"], 13 * TTL, even=True, seed=1)
    cluster.run(13 * TTL)
    assert not cluster.agreed()
    cluster.crash("n0000")
    assert cluster.until_agreed(15 * TTL) <= 15 * TTL, "two masters have seen it stay"


def test_a_few_restarts_one_after_the_other_are_let_in_at_once() -> None:
    cluster = formed(5)
    for _ in range(5):
        cluster.crash("n0003")
        cluster.start("n0003")
        assert cluster.until_agreed(1.0) <= 1.0
        cluster.run(2.0)


def test_a_node_that_starts_before_any_head_waits_and_joins_later() -> None:
    cluster = Members(4, 4, start=False)
    for name in cluster.names[1:]:
        cluster.start(name)
    cluster.run(10 * TTL)
    for node in cluster.nodes.values():
        assert members(node.membership.view) == [node.name]
        assert node.membership.settled
    cluster.start("n0000")
    assert cluster.until_agreed(2 * TTL) <= 2 * TTL


def test_a_whole_cluster_starts_cold_without_its_masters() -> None:
    cluster = formed(6)
    numbers = {node.membership.view.number for node in cluster.nodes.values()}
    for name in list(cluster.nodes):
        cluster.crash(name)
    cluster.run(60.0)
    for name in cluster.names[3:]:
        cluster.start(name)
    cluster.until_agreed(6 * TTL)
    assert min(n.membership.view.number for n in cluster.nodes.values()) > max(numbers)
    cluster.start("n0000", cold=True)
    cluster.until_agreed(2 * TTL)


def test_former_masters_that_start_cold_apart_meet_without_a_head() -> None:
    """On a slow machine each may begin the cluster before the other answers."""
    cluster = formed(3)
    for name in list(cluster.nodes):
        cluster.crash(name)
    cluster.run(60.0)
    cluster.cut(["n0001"], ["n0002"])
    for name in ("n0001", "n0002"):
        cluster.start(name)
    cluster.run(TTL)
    views = [cluster.nodes[name].membership.view for name in ("n0001", "n0002")]
    assert [members(view) for view in views] == [["n0001"], ["n0002"]]
    cluster.net.cuts.clear()
    cluster.until_agreed(2 * TTL)


def test_parts_meet_again_although_the_head_is_dead() -> None:
    cluster = formed(9)
    cluster.crash("n0000")
    cluster.until_agreed(6 * TTL)
    small, large = cluster.names[1:3], cluster.names[3:]
    cluster.cut(small, large)
    cluster.run(DETECTION_S + TTL)
    for side in (small, large):
        for name in side:
            assert members(cluster.nodes[name].membership.view) == side
    cluster.net.cuts.clear()
    cluster.until_agreed(2 * TTL)


def test_node_that_restarts_after_its_masters_died_finds_their_successors() -> None:
    cluster = formed(6)
    for name in ("n0005", *cluster.names[:3]):
        cluster.crash(name)
    cluster.until_agreed(6 * TTL)
    cluster.start("n0005")
    cluster.until_agreed(TTL)


def test_a_head_that_starts_cold_throws_nobody_out() -> None:
    cluster = formed(6)
    others = cluster.names[1:]
    cluster.crash("n0000")
    cluster.run(1.0)
    cluster.start("n0000", cold=True)
    never(
        cluster,
        3 * TTL,
        lambda: any(
            not set(others) <= set(members(cluster.nodes[name].membership.view)) for name in others
        ),
        "members were thrown out",
    )
    assert cluster.agreed()


def test_second_process_with_the_same_node_id_is_refused() -> None:
    cluster = formed(4)
    first = cluster.nodes["n0003"]
    twin = Node(cluster, "n0003", 999, None)
    twin.start()
    # The twin gets another address, so that answers to it do not reach the first process.
    object.__setattr__(twin.membership.own.address, "host", "elsewhere")
    cluster.run(3 * TTL)
    assert twin.refused == 1
    assert first.membership.view.has(first.address)


def test_lossy_networks_remove_nobody() -> None:
    cluster = Members(8, 12, heads=3, drop=0.15, double=0.1, delay_s=0.2)
    cluster.until_agreed(60.0)
    before = {name: cluster.nodes[name].address for name in cluster.names}
    never(
        cluster,
        30 * TTL,
        lambda: any(
            not node.membership.view.has(address)
            for node in cluster.nodes.values()
            for address in before.values()
        ),
        "a node was removed for lost messages",
    )


@pytest.mark.parametrize("nodes", [100, pytest.param(1000, marks=pytest.mark.slow)])
def test_large_clusters_agree_within_seconds(nodes: int) -> None:
    cluster = Members(9, nodes, heads=3, timing=Timing(1.0, 5.0), delay_s=0.005)
    cluster.until_agreed(20.0)
    cluster.crash(cluster.names[-1])
    assert cluster.until_agreed(DETECTION_S + 2.0) <= DETECTION_S + 2.0
    cluster.start(cluster.names[-1])
    assert cluster.until_agreed(3.0) <= 3.0


def test_join_time_includes_one_simulated_call_per_member() -> None:
    def join_s(call_s: float) -> float:
        cluster = Members(1, 40, max_masters=1, call_s=call_s, delay_s=0.001)
        cluster.until_agreed(60.0)
        cluster.run(2 * TIMING.member_ttl_s)
        cluster.start("newcomer")
        return cluster.until_agreed(60.0, 0.01)

    assert join_s(0.0) < 0.1
    assert 40 * 0.01 < join_s(0.01) < 3 * 40 * 0.01
