"""Five hosts restart one after the other, planned or by kill, while workers read and set."""

from collections.abc import Iterator

import pytest
from harness.background import Background
from harness.clock import seconds
from harness.cluster import Cluster
from harness.directory import wait_settled
from harness.fixtures import MakeCluster
from harness.netns import Network, reason_to_skip
from harness.pages import Pages, keys_of
from harness.steady_reader import SteadyReader

pytestmark = pytest.mark.netns

PAGE_BYTES = 16384
PAGES_EACH = 24
TIMEOUT_S = 2.0
# Shorter than every timeout, so no call may wait for one.
WAIT_MAX_S = seconds(1.0)
# Time to hand over pages at SIGTERM; there are few.
STOP_DRAIN_S = 20
STOP_S = 40


@pytest.fixture
def hosts(make_cluster: MakeCluster) -> Iterator[Cluster]:
    if reason := reason_to_skip():
        pytest.skip(reason)
    network = Network("abcde")
    # Long enough for a busy machine: only the restarted node may leave the view.
    cluster = make_cluster(5, start=False, stop_drain_s=STOP_DRAIN_S, member_ttl_s=6)
    try:
        network.start(cluster)
        yield cluster
    finally:
        for daemon in cluster.daemons:
            daemon.clean_up()
        network.remove()


def set_everywhere(hosts: Cluster) -> dict[str, list[bytes]]:
    """Sets pages at every node. Returns their keys by node."""
    keys = {daemon.node_id: keys_of(f"of {daemon.node_id}", PAGES_EACH) for daemon in hosts.daemons}
    for daemon in hosts.daemons:
        assert all(daemon.attach(page_bytes=PAGE_BYTES).set(keys[daemon.node_id]))
    return keys


def found(pages: Pages, keys: list[bytes]) -> int:
    return sum(map(bool, pages.get(keys)))


def test_a_planned_restart_of_every_node_costs_a_steady_reader_nothing(hosts: Cluster) -> None:
    """SIGTERM hands the pages over. The worker reads pages of the restarted nodes."""
    keys = [key for part in set_everywhere(hosts).values() for key in part]
    # The head restarts last, observed from another node.
    for at, restarted in ((hosts[0], hosts.daemons[1:]), (hosts[1], hosts.daemons[:1])):
        # Longer than every other timeout, so that waiting for a node cannot turn into a miss.
        worker = at.attach(page_bytes=PAGE_BYTES, room_pages=len(keys), timeout_s=20.0)
        missed: list[int] = []

        def work(worker: Pages = worker, missed: list[int] = missed) -> None:
            missed.append(len(keys) - found(worker, keys))
            new = keys_of(f"new at {at.node_id} in round {len(missed)}", 4)  # noqa: B023
            assert all(worker.set(new))

        with Background(work) as working:
            for daemon in restarted:
                working.wait_rounds(1)
                assert daemon.stop(STOP_S) == 0
                hosts.start_again(daemon)
            working.wait_rounds(1)
        assert sum(missed) == 0, missed
        assert worker.calls.longest_s < WAIT_MAX_S
    assert found(worker, keys) == len(keys)


def test_nodes_killed_in_turn_cost_only_their_own_pages(hosts: Cluster) -> None:
    keys = set_everywhere(hosts)
    steady = keys["a"] + keys["b"]
    doomed = keys["c"] + keys["d"] + keys["e"]
    every = steady + doomed
    reader = hosts[0].attach(page_bytes=PAGE_BYTES, room_pages=len(every), timeout_s=TIMEOUT_S)
    witness = hosts[0].attach(page_bytes=PAGE_BYTES, timeout_s=TIMEOUT_S)
    with (
        Background(lambda: found(reader, every)) as reading,
        SteadyReader(witness, steady) as steadily,
    ):
        for daemon in hosts.daemons[2:]:
            reading.wait_rounds(2)
            daemon.kill()
            wait_settled(hosts.daemons)
            reading.wait_rounds(2)
            daemon.start()
            wait_settled(hosts.daemons)
        steadily.check_whole("three nodes were killed and came back", rounds=2)
    assert found(reader, doomed) == 0, "they went with their holders"
    attach_again = hosts[4].attach(page_bytes=PAGE_BYTES, room_pages=len(doomed))
    assert all(attach_again.set(doomed)), "they can be set again at once"
    assert found(reader, every) == len(every)
