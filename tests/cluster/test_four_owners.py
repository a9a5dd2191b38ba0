"""Six daemons, with four owners of records."""

from harness.background import Background
from harness.cluster import Daemon
from harness.directory import wait_settled
from harness.fixtures import MakeCluster
from harness.pages import keys_of

from peercached.admin.client import AdminClient


def owners(daemon: Daemon) -> set[str]:
    with AdminClient(str(daemon.admin_path)) as admin:
        return {node.node_id for node in admin.ring().nodes if node.share_owned}


def test_reader_misses_nothing_while_an_owner_dies_another_succeeds_it_and_it_comes_back(
    make_hosts: MakeCluster,
) -> None:
    """Every lookup asks owners, and both workers are at nodes that own nothing at first."""
    cluster = make_hosts(6, directory_copies=0, location_cache_entries=1024, rpc_timeout_ms=20_000)
    nodes = {daemon.node_id: daemon for daemon in cluster.daemons}
    chosen = owners(cluster[0])
    assert len(chosen) == 4
    assert all(owners(daemon) == chosen for daemon in cluster.daemons)

    setting, reading = (nodes[node_id] for node_id in sorted(nodes.keys() - chosen))
    writer = setting.attach(page_bytes=4096)
    reader = reading.attach(page_bytes=4096, timeout_s=10.0)
    batches = [keys_of(f"batch {number}", 32) for number in range(64)]
    for keys in batches:
        assert all(writer.set(keys))
        assert reader.has(keys), "a set has answered"

    missed: list[int] = []

    def read_all() -> None:
        found = sum(sum(map(bool, reader.get(keys))) for keys in batches)
        missed.append(sum(map(len, batches)) - found)

    dying = nodes[min(chosen - {cluster[0].node_id, cluster[1].node_id, cluster[2].node_id})]
    others = [daemon for daemon in cluster.daemons if daemon is not dying]
    with Background(read_all) as background:
        background.wait_rounds(1)
        dying.kill()
        for daemon in others:
            daemon.wait_members(sorted(nodes.keys() - {dying.node_id}))
        wait_settled(others)
        background.wait_rounds(2)
        successors = owners(reading)
        assert successors > chosen - {dying.node_id}
        assert len(successors) == 4
        dying.start()
        wait_settled(cluster.daemons)
        background.wait_rounds(1)
        assert owners(reading) == successors, "a restart is a new process"
    assert sum(missed) == 0, missed
    assert all(owners(daemon) == successors for daemon in cluster.daemons)
    assert dying.attach(page_bytes=4096).has(batches[0])
