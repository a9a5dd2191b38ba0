"""Daemons that restart many times, under load, and at each other's addresses."""

from pathlib import Path

import pytest
from harness.background import Background
from harness.cluster import Cluster, Daemon
from harness.fixtures import MakeCluster
from harness.nemeses import LET_IN_S
from harness.pages import keys_of
from harness.waiting import eventually

from peercache_client import Status


def open_files(daemon: Daemon) -> int:
    return sum(1 for _ in Path(f"/proc/{daemon.pid}/fd").iterdir())


@pytest.mark.parametrize("kills", [4, pytest.param(8, marks=pytest.mark.slow)])
def test_survivors_leak_no_descriptors_when_a_daemon_keeps_dying(
    make_cluster: MakeCluster, kills: int
) -> None:
    cluster = make_cluster(3)
    victim, survivors = cluster[2], cluster.daemons[:2]
    readers = [daemon.attach() for daemon in survivors]

    def live_and_die(number: int) -> None:
        keys = keys_of(f"life {number}", 16)
        with victim.attach() as pages:
            assert all(pages.set(keys))
        for reader in readers:
            assert reader.has(keys)
        victim.kill()
        for reader in readers:
            assert not any(reader.get(keys))
        victim.start()
        cluster.wait_complete(LET_IN_S)

    live_and_die(0)  # all connections have been made once
    before = [open_files(daemon) for daemon in survivors]
    for number in range(1, kills + 1):
        live_and_die(number)
    for daemon, count in zip(survivors, before, strict=True):
        eventually(lambda: open_files(daemon) <= count, 20, f"{count} files")  # noqa: B023


def test_a_restart_under_load_costs_only_its_own_pages(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(3)
    others = keys_of("held by the others", 64)
    assert all(cluster[0].attach().set(others))
    rounds = iter(range(1 << 30))
    writer, reader, own = cluster[2].attach(), cluster[0].attach(), cluster[1].attach()
    misses: list[int] = []

    def write() -> None:
        keys = keys_of(f"written {next(rounds)}", 8)
        assert all(writer.set(keys))
        reader.get(keys)

    def read() -> None:
        misses.append(64 - sum(map(bool, witness.get(others))))

    def own_worker() -> None:
        own.set(keys_of("its own", 8))
        own.get(keys_of("its own", 8))

    witness = cluster[2].attach()
    with Background(write) as writing, Background(read) as reading, Background(own_worker):
        for _ in range(3):
            writing.wait_rounds(5)
            reading.wait_rounds(5)
            assert cluster[1].stop() == 0
            writing.wait_rounds(5)
            cluster[1].start()
            cluster.wait_complete(LET_IN_S)
    assert sum(misses) == 0, "the pages of a node that stayed were missed"
    eventually(lambda: all(own.set(keys_of("its own", 8))), 10)
    assert own.has(keys_of("its own", 8))


def swap_places(one: Daemon, other: Daemon) -> None:
    for name in ("host", "meta_port", "data_port"):
        mine, theirs = getattr(one, name), getattr(other, name)
        setattr(one, name, theirs)
        setattr(other, name, mine)


@pytest.mark.parametrize(
    "end",
    [pytest.param(Daemon.stop, marks=pytest.mark.slow), Daemon.kill],
    ids=["stopped", "killed"],
)
def test_nodes_restarted_with_swapped_addresses_keep_their_identity(
    make_cluster: MakeCluster, end: object
) -> None:
    assert callable(end)
    cluster: Cluster = make_cluster(3)
    names = ("from a", "from b", "from c")
    for daemon, name in zip(cluster.daemons, names, strict=True):
        assert all(daemon.attach().set(keys_of(name, 16)))
    reader = cluster[0].attach()
    for name in names:
        assert reader.has(keys_of(name, 16))
    end(cluster[1])
    end(cluster[2])
    swap_places(cluster[1], cluster[2])
    cluster[1].start()
    cluster.start_again(cluster[2])
    assert reader.has(keys_of("from a", 16))
    for name in names[1:]:
        assert not any(reader.get(keys_of(name, 16)))
    for daemon, name in zip(cluster.daemons[1:], names[1:], strict=True):
        assert all(daemon.attach().set(keys_of(name, 16)))
    for daemon in cluster.daemons:
        there = daemon.attach()
        for name in names:
            assert there.has(keys_of(name, 16))
    members = cluster[0].status()["membership"]["members"]
    assert {m["node_id"]: m["host"] for m in members} == {
        "a": "127.0.0.1",
        "b": "127.0.0.3",
        "c": "127.0.0.2",
    }


def test_new_cluster_secret_is_not_reported_as_an_old_state_dir(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    """A new secret resets the journals. That alone must not look like a restored backup."""
    cluster = make_cluster(3)
    keys = keys_of("secret", 8)
    assert all(cluster[0].attach().set(keys))
    assert all(cluster[1].attach().client.remove(keys[:4]))
    for secret in ("", "one", "another", ""):
        path = tmp_path / secret
        if secret:
            path.touch(mode=0o600)
            path.write_text(secret * 20)
        for daemon in cluster.daemons:
            assert daemon.stop() == 0
        for daemon in cluster.daemons:
            daemon.options["cluster-secret-file"] = str(path) if secret else ""
            daemon.start()
        cluster.wait_complete(LET_IN_S)
        assert all(cluster[0].attach().set(keys))
        assert cluster[1].attach().has(keys)
        assert cluster[2].attach().client.remove(keys) == [Status.ok] * 8
    logs = "".join(daemon.log_path.read_text() for daemon in cluster.daemons)
    assert "old" not in logs and "backup" not in logs
    assert logs.count("the cluster secret has changed") == 9
