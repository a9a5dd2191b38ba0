"""Lookups at owners among several nodes, settled between native threads.

Most tests disable copies of records, which would settle lookups without the owners
(test_copies.py).
"""

import itertools

import pytest
from harness.background import Background
from harness.cluster import Cluster, Daemon
from harness.directory import wait_settled
from harness.fixtures import MakeCluster
from harness.pages import keys_of
from harness.waiting import eventually


def asked(daemon: Daemon) -> tuple[int, int]:
    """Counts of frames sent to owners, and searches that had to ask all owners."""
    operations = daemon.status()["operations"]
    return operations["lookup_frames"], operations["lookups_passed_on"]


def test_lookups_that_meet_no_trouble_are_settled_in_frames(make_cluster: MakeCluster) -> None:
    """Looks up present and absent keys. Each digest has two owners out of eight nodes."""
    cluster = make_cluster(8, member_ttl_s=15, rpc_timeout_ms=5000, directory_copies=0)
    wait_settled(cluster.daemons)
    writer = cluster[0].attach(page_bytes=4096, room_pages=128)
    names = itertools.count()

    def is_settled_in_frames() -> bool:
        """False if an owner was late because the machine is busy. Then the caller retries."""
        keys = keys_of(f"round {next(names)}", 128)
        assert all(writer.set(keys[:100]))
        before = asked(reader.daemon)
        assert reader.pages.client.batch_exists(keys) == 100
        assert reader.pages.has(keys[:100])
        assert not any(reader.pages.get(keys[100:]))
        frames, passed_on = asked(reader.daemon)
        # Exists, and the get of absent keys, each ask at most seven owners.
        assert 2 <= frames - before[0] <= 14
        return passed_on == before[1]

    for daemon in cluster.daemons[1:]:
        reader = Reader(daemon)
        eventually(is_settled_in_frames)


class Reader:
    def __init__(self, daemon: Daemon) -> None:
        self.daemon = daemon
        self.pages = daemon.attach(page_bytes=4096, room_pages=128)


@pytest.mark.parametrize(
    ("nodes", "rounds"), [(5, 300), pytest.param(8, 250_000, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("copies", [0, 100_000])
def test_set_pages_are_found_at_once_during_membership_changes(
    make_cluster: MakeCluster, nodes: int, rounds: int, copies: int
) -> None:
    """The restarting nodes own records but hold no pages. They restart too rarely to be damped."""
    cluster = make_cluster(nodes, member_ttl_s=15, rpc_timeout_ms=5000, directory_copies=copies)
    wait_settled(cluster.daemons)
    pages = [daemon.attach(page_bytes=4096) for daemon in cluster.daemons[:3]]
    visitors = Visitors(cluster)
    for number in range(rounds):
        if number % max(rounds // 32, 100) == 50:
            visitors.change()
        keys = keys_of(f"round {number}", 4)
        writer, reader = pages[number % 3], pages[(number + 1) % 3]
        assert all(writer.set(keys))
        assert reader.has(keys), f"round {number}"


def test_pages_set_during_a_join_are_found_with_one_replica(make_cluster: MakeCluster) -> None:
    """Whether or not the writer, owner and reader know of the new member yet."""
    cluster = make_cluster(
        4, member_ttl_s=15, rpc_timeout_ms=5000, directory_replicas=1, directory_copies=0
    )
    wait_settled(cluster.daemons)
    newcomer = cluster[3]
    pages = [daemon.attach(page_bytes=4096) for daemon in cluster.daemons[:3]]
    rounds = itertools.count()

    def found_at_once() -> None:
        number = next(rounds)
        writer, reader = pages[number % 3], pages[(number + 1) % 3]
        keys = keys_of(f"round {number}", 4)
        assert all(writer.set(keys))
        assert reader.has(keys), f"round {number}"

    for _ in range(3):
        assert newcomer.stop(30) == 0
        wait_settled(cluster.daemons[:3])
        with Background(found_at_once) as readers:
            newcomer.start()
            newcomer.wait_ready()
            wait_settled(cluster.daemons)
            readers.wait_rounds(20)


class Visitors:
    """The last two nodes: at each change one leaves and the other returns."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._away: Daemon | None = None
        self._next = itertools.cycle(cluster.daemons[3:])

    def change(self) -> None:
        if self._away is not None:
            self._away.start()
            self._away = None
        else:
            self._away = next(self._next)
            assert self._away.stop(30) == 0
