"""Claims about whole clusters, in virtual time, by seed."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from harness.fake_engine import digest_of

from sim import stories
from sim.cluster import DEAD_ARE_KNOWN_S, SimCluster
from sim.engine import READ_TIMEOUT_S
from sim.members import TIMING
from sim.seeds import some

QUIET_S = 4 * TIMING.member_ttl_s + 30.0
Make = Callable[..., SimCluster]


@pytest.fixture
def make_cluster() -> Iterator[Make]:
    with ExitStack() as stack:
        yield lambda *args, **more: stack.enter_context(SimCluster(*args, **more))


@pytest.mark.parametrize("seed", some(6, 60))
def test_cluster_converges_and_finds_every_page_after_random_faults(seed: int) -> None:
    stories.pages(seed)


@pytest.mark.parametrize("seed", some(8, 80))
def test_planned_joins_drains_and_leaves_cost_nobody_a_visible_page(seed: int) -> None:
    stories.planned(seed)


@pytest.mark.parametrize("seed", some(6, 80))
def test_hung_master_removes_no_member_and_costs_no_page(seed: int) -> None:
    stories.hung(seed)


@pytest.mark.parametrize(
    ("kind", "size"),
    [
        ("pages", 12),
        ("planned", 12),
        *(pytest.param(kind, 30, marks=pytest.mark.slow) for kind in stories.KINDS),
    ],
)
def test_the_stories_of_many_nodes_end_as_well(kind: str, size: int) -> None:
    assert len(stories.KINDS[kind](1, size).names) == size


def test_members_without_pages_own_records_but_are_not_followed(make_cluster: Make) -> None:
    cluster = make_cluster(9, 8, holders={"n0000", "n0003"})
    cluster.run(10.0)
    digests = [digest_of(f"page {page}") for page in range(50)]
    for digest in digests:
        cluster.nodes["n0003"].set_page(digest)
    cluster.run(2.0)
    assert all(node.engine.log.table.records for n, node in cluster.nodes.items() if n != "n0003")
    for node in cluster.nodes.values():
        followed = {node.engine.nodes[index][0] for index in node.engine.log.lanes}
        assert followed == {"n0000", "n0003"} - {node.name}
    cluster.crash("n0004")
    cluster.run(2 * TIMING.member_ttl_s)
    cluster.check_quiet()


@pytest.mark.parametrize("seed", some(4, 25))
def test_partition_sides_keep_their_pages_through_split_and_healing(seed: int) -> None:
    stories.parted(seed)


@pytest.mark.parametrize("gone", [12, 4])
def test_survivors_take_over_when_a_rack_with_all_masters_dies(
    make_cluster: Make, gone: int
) -> None:
    """Even if all the dead nodes come first in the order of candidates."""
    cluster = make_cluster(3, 16, max_masters=1)
    cluster.until_agreed(30.0)
    cluster.run(2.0)
    for name in cluster.names[:gone]:
        cluster.crash(name, machine=True)
    assert cluster.until_agreed(4 * TIMING.member_ttl_s)


def test_twenty_nodes_form_one_view_and_find_each_others_pages(make_cluster: Make) -> None:
    cluster = make_cluster(1, 20)
    cluster.run(5.0)
    for name, node in cluster.nodes.items():
        for page in range(5):
            node.set_page(digest_of(f"{name}/{page}"))
    cluster.run(2.0)
    cluster.check_quiet()


def test_workers_are_served_once_the_members_can_be_read_from(make_cluster: Make) -> None:
    cluster = make_cluster(1, 8)
    cluster.run(5.0)
    newcomer = cluster.start("x")
    while not newcomer.engine.serves:
        cluster.run(0.001)
    assert len(newcomer.view.members) == 9
    assert len(newcomer.engine.connected) == 8


def test_a_page_is_found_everywhere_as_soon_as_its_set_was_answered(make_cluster: Make) -> None:
    cluster = make_cluster(2, 6)
    cluster.run(10.0)
    for page in range(40):
        digest = digest_of(f"page {page}")
        setter = cluster.net.rng.choice(list(cluster.nodes.values()))
        answered: list[bool] = []

        def check(digest: bytes = digest, answered: list[bool] = answered) -> None:
            answered.append(True)
            assert all(node.find(digest) for node in cluster.nodes.values())

        setter.set_page(digest, check)
        cluster.run(0.5)
        assert answered


def test_joins_and_a_crash_cost_no_page_of_a_survivor(make_cluster: Make) -> None:
    """Owners change with every view. Until the new owners are in sync, readers also ask the other
    owners and the former ones."""
    cluster = make_cluster(3, 5)
    cluster.run(10.0)
    stayer = cluster.nodes["n0000"]
    digests = [digest_of(f"kept {page}") for page in range(100)]
    for digest in digests:
        stayer.set_page(digest)
    cluster.run(2.0)
    everything = set(digests)

    def watch(seconds: float) -> None:
        for _ in range(int(seconds / 0.02)):
            cluster.run(0.02)
            for node in cluster.nodes.values():
                if node.engine.serves:
                    assert set(node.find(b"".join(digests))) == everything, node.name

    for joiner in ("x1", "x2", "x3"):
        cluster.start(joiner)
        watch(1.0)
    cluster.crash("n0003")
    watch(2 * TIMING.member_ttl_s)


def test_pages_of_a_dead_node_are_found_nowhere_after_the_ttl(make_cluster: Make) -> None:
    cluster = make_cluster(4, 5)
    cluster.run(10.0)
    digest = digest_of("doomed")
    cluster.nodes["n0004"].set_page(digest)
    cluster.run(1.0)
    assert cluster.nodes["n0001"].find(digest)
    cluster.crash("n0004")
    cluster.run(TIMING.member_ttl_s + 2.0)
    assert not any(node.find(digest) for node in cluster.nodes.values())
    cluster.start("n0004")
    cluster.run(QUIET_S)
    assert not any(node.find(digest) for node in cluster.nodes.values())
    cluster.check_quiet()


def test_pages_of_a_silently_dead_machine_are_read_from_other_holders(
    make_cluster: Make,
) -> None:
    """Its connections do not end, so only timeouts reveal its death."""
    cluster = make_cluster(8, 5)
    cluster.run(10.0)
    digests = [digest_of(f"page {page}") for page in range(30)]
    for digest in digests:
        cluster.nodes["n0003"].set_page(digest)
        cluster.nodes["n0004"].set_page(digest)
    cluster.run(1.0)
    cluster.crash("n0004", machine=True)
    got: list[set[bytes]] = []
    began = cluster.net.now
    ended: list[float] = []

    def done(found: set[bytes]) -> None:
        got.append(found)
        ended.append(cluster.net.now - began)

    cluster.nodes["n0001"].get(digests, done)
    cluster.run(10.0)
    assert got == [set(digests)]
    assert ended[0] > READ_TIMEOUT_S / 1.03, "somebody said that the machine was down"
    cluster.nodes["n0002"].get(digests, done)
    cluster.run(READ_TIMEOUT_S)
    assert got[1:] == [set(digests)]
    cluster.start("n0004")
    cluster.run(QUIET_S)
    cluster.check_quiet()


def test_simulation_fails_on_a_record_of_a_long_dead_process(
    make_cluster: Make,
) -> None:
    """Tests the check itself: it knows the truth, so it catches a reader that stopped taking
    views."""
    cluster = make_cluster(8, 4)
    cluster.run(10.0)
    digest = digest_of("of a dead one")
    cluster.nodes["n0003"].set_page(digest)
    cluster.run(1.0)
    reader = cluster.nodes["n0001"]
    rows = reader.find_now(digest)
    assert rows
    reader.daemon.cluster.act = lambda actions: None  # type: ignore[attr-defined]
    cluster.crash("n0003")
    cluster.run(2.0)
    cluster.check_truth(reader, rows)
    cluster.run(DEAD_ARE_KNOWN_S)
    assert any(node.address.node_id == "n0003" for node in reader.daemon.placement.nodes.values())
    cluster.check_truth(reader, rows)
    with pytest.raises(AssertionError, match="dead for"):
        cluster.run(0.0)


def test_the_only_head_restarts_and_nobody_is_thrown_out(make_cluster: Make) -> None:
    cluster = make_cluster(5, 6)
    cluster.run(10.0)
    before = {name: node.view.number for name, node in cluster.nodes.items()}
    cluster.crash("n0000")
    cluster.run(1.0)
    cluster.start("n0000")
    for _ in range(200):
        cluster.run(0.1)
        for name in cluster.names[1:]:
            view = cluster.nodes[name].view
            assert set(cluster.names[1:]) <= {m.node_id for m in view.members}
    assert all(cluster.nodes[name].view.number > before[name] for name in before)
    cluster.check_quiet()


def test_the_second_head_takes_over_and_hands_back(make_cluster: Make) -> None:
    cluster = make_cluster(6, 5, heads=2)
    cluster.run(10.0)

    def masters() -> set[tuple[str, ...]]:
        return {
            tuple(m["node_id"] for m in n.ask(n.daemon.cluster.document)["masters"])
            for n in cluster.nodes.values()
        }

    assert masters() == {("n0000", "n0001", "n0002")}
    cluster.crash("n0000")
    cluster.run(3 * TIMING.member_ttl_s)
    assert masters() == {("n0001", "n0002", "n0003")}
    cluster.check_quiet()
    cluster.start("n0000")
    cluster.run(QUIET_S)
    assert masters() == {("n0000", "n0001", "n0002")}
    cluster.check_quiet()


@pytest.mark.parametrize("size", [8, pytest.param(20, marks=pytest.mark.slow)])
def test_many_nodes_survive_a_bad_network(make_cluster: Make, size: int) -> None:
    cluster = make_cluster(99, size, heads=3, drop=0.03, double=0.03, delay_s=0.2)
    rng = random.Random(99)
    for step in range(150):
        cluster.run(0.1)
        node = cluster.nodes[rng.choice(list(cluster.nodes))]
        node.set_page(digest_of(f"{step}"))
        if step in (40, 90):
            cluster.crash(node.name)
    for name in cluster.names:
        if name not in cluster.nodes:
            cluster.start(name)
    cluster.net.calm()
    cluster.run(QUIET_S)
    cluster.check_quiet()
