"""Copies of other nodes' records: which lookups they settle, and which they must not."""

import itertools
from functools import partial

from harness.cluster import Daemon
from harness.directory import wait_settled
from harness.fixtures import MakeCluster
from harness.pages import keys_of
from harness.waiting import eventually

from peercached.admin.client import AdminClient

PAGE_BYTES = 4096


def asked(daemon: Daemon) -> tuple[int, int]:
    """Counts lookups sent to owners, and those that had to ask all owners."""
    operations = daemon.status()["operations"]
    return operations["lookups_asked"], operations["lookups_passed_on"]


def copied(daemon: Daemon) -> int:
    """The number of nodes that this daemon has copied the records of."""
    holders: int = daemon.status()["copies"]["holders"]
    return holders


def has_copies(daemon: Daemon, records: int) -> bool:
    return int(daemon.status()["copies"]["records"]) >= records


def test_copies_answer_lookups_without_asking_owners(make_cluster: MakeCluster) -> None:
    """Each digest has two owners out of five nodes. The fifth node joins after the sets."""
    cluster = make_cluster(5, member_ttl_s=15, rpc_timeout_ms=5000)
    newcomer = cluster[4]
    assert newcomer.stop(30) == 0
    wait_settled(cluster.daemons[:4])
    keys = keys_of("page", 128)
    for number, daemon in enumerate(cluster.daemons[:4]):
        writer = daemon.attach(page_bytes=PAGE_BYTES)
        assert all(writer.set(keys[32 * number : 32 * number + 32]))
    newcomer.start()
    newcomer.wait_ready()
    wait_settled(cluster.daemons)
    for daemon in cluster.daemons:
        eventually(partial(has_copies, daemon, 96))
        before = asked(daemon)
        elsewhere = keys[0] if daemon is not cluster[0] else keys[-1]
        with AdminClient(str(daemon.admin_path)) as admin:
            steps = [step.name for step in admin.trace("test", elsewhere).steps]
        assert steps == ["pool", "copies", "read"]
        reader = daemon.attach(page_bytes=PAGE_BYTES, room_pages=128)
        assert reader.client.batch_exists(keys) == 128
        assert reader.has(keys)
        assert asked(daemon) == before


def test_prefix_end_is_settled_by_asking_at_most_one_owner(make_cluster: MakeCluster) -> None:
    """The first page without a copied record decides the prefix, so later pages need no
    question."""
    cluster = make_cluster(5, member_ttl_s=15, rpc_timeout_ms=5000)
    wait_settled(cluster.daemons)
    writer = cluster[0].attach(page_bytes=PAGE_BYTES)
    reader = cluster[1].attach(page_bytes=PAGE_BYTES)
    names = itertools.count()

    def is_settled_by_one(length: int) -> bool:
        """False if the copy or the owner was late because the machine is busy. Then the caller
        retries."""
        keys = keys_of(f"round {next(names)}", 128)
        assert all(writer.set(keys[:length]))
        before = cluster[1].status()["operations"]
        assert reader.client.batch_exists(keys) == length
        after = cluster[1].status()["operations"]
        frames, passed_on = (
            int(after[name] - before[name]) for name in ("lookup_frames", "lookups_passed_on")
        )
        assert frames <= 4
        return frames <= 1 and passed_on == 0

    for length in (0, 1, 64):
        eventually(partial(is_settled_by_one, length))


def test_copy_is_dropped_when_its_node_dies_and_rebuilt_on_return(
    make_cluster: MakeCluster,
) -> None:
    cluster = make_cluster(3)
    wait_settled(cluster.daemons)
    eventually(lambda: copied(cluster[0]) == 2)
    keys = keys_of("page", 32)
    assert all(cluster[2].attach(page_bytes=PAGE_BYTES).set(keys))
    reader = cluster[0].attach(page_bytes=PAGE_BYTES)
    eventually(lambda: reader.client.batch_exists(keys) == 32)
    cluster[2].kill()
    cluster[0].wait_members(["a", "b"])
    assert reader.client.batch_exists(keys) == 0
    assert copied(cluster[0]) == 1
    cluster[2].start()
    wait_settled(cluster.daemons)
    eventually(lambda: copied(cluster[0]) == 2)
    again = cluster[2].attach(page_bytes=PAGE_BYTES)
    assert all(again.set(keys))
    before = asked(cluster[0])
    eventually(partial(has_copies, cluster[0], 32))
    assert reader.client.batch_exists(keys) == 32
    assert asked(cluster[0]) == before


def test_node_without_room_for_all_records_keeps_those_that_it_owns(
    make_cluster: MakeCluster,
) -> None:
    """Each of five nodes owns two fifths of the records, or none: there are four owners."""
    cluster = make_cluster(5, directory_copies=1024, directory_capacity=5000)
    wait_settled(cluster.daemons)
    writer = cluster[4].attach(page_bytes=PAGE_BYTES)
    keys = keys_of("page", 6400)
    for at in range(0, len(keys), 64):
        assert all(writer.set(keys[at : at + 64]))
    eventually(lambda: cluster[0].status()["copies"]["only_owned"])
    wait_settled(cluster.daemons)
    for daemon in cluster.daemons[:4]:
        reader = daemon.attach(page_bytes=PAGE_BYTES)
        for at in range(0, len(keys), 64):
            assert reader.has(keys[at : at + 64])
