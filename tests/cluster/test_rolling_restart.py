"""All nodes are restarted, one after the other, while somebody reads all the time."""

import pytest
from harness.background import Background
from harness.draining import drain
from harness.fixtures import Attach, MakeCluster
from harness.pages import Pages, keys_of
from harness.waiting import eventually

PAGE_BYTES = 16384
TIMEOUT_S = 2.0
# A busy machine may be late with an answer that is due.
SLACK_S = 1.5


def found(pages: Pages, keys: list[bytes]) -> int:
    return sum(map(bool, pages.get(keys)))


@pytest.mark.timeout(240)
def test_a_steady_reader_misses_nothing_while_all_others_drain_and_come_back(
    make_cluster: MakeCluster, attach: Attach
) -> None:
    """What is read lies at the nodes that are restarted, and nowhere else when it begins."""
    cluster = make_cluster(5)
    keys: list[bytes] = []
    for daemon in cluster.daemons:
        mine = keys_of(f"of {daemon.node_id}", 24)
        assert all(attach(daemon, page_bytes=PAGE_BYTES).set(mine))
        keys += mine
    # The first reader's own node, the head, goes last: then the other one is the witness.
    rounds = ((cluster[0], cluster.daemons[1:]), (cluster[1], cluster.daemons[:1]))
    for at, restarted in rounds:
        reader = attach(at, page_bytes=PAGE_BYTES, room_pages=len(keys), timeout_s=20.0)
        missed: list[int] = []
        with Background(lambda: missed.append(len(keys) - found(reader, keys))) as reading:  # noqa: B023
            for daemon in restarted:
                reading.wait_rounds(1)
                assert drain(daemon)["complete"]
                assert daemon.stop() == 0
                daemon.start()
                cluster.wait_complete()
            reading.wait_rounds(1)
        assert sum(missed) == 0, missed
    assert found(reader, keys) == len(keys)


@pytest.mark.timeout(240)
def test_nodes_that_are_killed_one_after_the_other_never_cost_a_call_more_than_its_deadline(
    make_cluster: MakeCluster, attach: Attach
) -> None:
    cluster = make_cluster(5)
    steady = keys_of("at the reader's neighbour", 24)
    assert all(attach(cluster[1], page_bytes=PAGE_BYTES).set(steady))
    doomed: list[bytes] = []
    for daemon in cluster.daemons[2:]:
        mine = keys_of(f"of {daemon.node_id}", 24)
        assert all(attach(daemon, page_bytes=PAGE_BYTES).set(mine))
        doomed += mine
    every = steady + doomed
    reader = attach(cluster[0], page_bytes=PAGE_BYTES, room_pages=len(every), timeout_s=TIMEOUT_S)
    with Background(lambda: found(reader, every)) as reading:
        for daemon in cluster.daemons[2:]:
            reading.wait_rounds(2)
            daemon.kill()
            reading.wait_rounds(2)
            daemon.start()
            cluster.wait_complete()
    assert reader.longest_call_s < TIMEOUT_S + SLACK_S
    eventually(lambda: found(reader, steady) == len(steady), 10, "the others' pages are there")
    assert found(reader, doomed) == 0, "they went with their holders"
