"""A node was away, and removals did not wait for it: an operator had forgotten it, it looked as if
it had ended, or its files are from a backup. When it is back, no node finds a removed page."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from harness.clock import seconds
from harness.cluster import Cluster, Daemon, wait_views
from harness.ctl import ctl
from harness.disks import disk_options, wait_written
from harness.fixtures import MakeCluster
from harness.netns import Network
from harness.pages import keys_of
from harness.versions import Versions
from harness.waiting import eventually
from harness.warm_pools import PoolFiles

from peercache_client import Status
from peercached.admin.client import AdminClient, Refused
from peercached.cli import exits

KEYS = keys_of("changed", 20)
OTHERS = keys_of("others", 60)
OLD, NEW = 1, 2
ALL_DROPPED_S = 10.0

Worker = Callable[..., Versions]


def nobody_finds_a_removed_page(cluster: Cluster, worker: Worker) -> None:
    readers = {d.node_id: worker(d) for d in cluster.daemons if d.alive}
    for node_id, reader in readers.items():
        none_old = f"no removed page at {node_id}"
        eventually(lambda: OLD not in reader.get(KEYS), ALL_DROPPED_S, none_old)  # noqa: B023
    for node_id, reader in readers.items():
        assert OLD not in reader.get(KEYS), f"a removed page came back at {node_id}"


def remove_and_forget(cluster: Cluster, network: Network, worker: Worker) -> None:
    """Pages of c are removed at a, and the operator takes c for dead. Its host must be cut for
    that: otherwise `forget` refuses."""
    a, b, _ = cluster.daemons
    wait_views(a, b)
    at_a = worker(a, timeout_s=seconds(2.0))
    assert set(at_a.remove(KEYS)) == {Status.removing}
    network.cut("c")
    # An answer of that host from before it was cut counts for half a second.
    eventually(lambda: ctl(a, "forget", "c", "--yes").exit_code == exits.OK)
    at_a.remove_surely(KEYS)


@pytest.mark.netns
def test_a_paused_node_that_was_forgotten_drops_what_was_removed(
    hosts: Cluster, network: Network, worker: Worker
) -> None:
    c = hosts[2]
    assert all(worker(c).set(KEYS, OLD))
    c.freeze()
    remove_and_forget(hosts, network, worker)
    network.heal("c")
    c.thaw()
    hosts.wait_complete()
    nobody_finds_a_removed_page(hosts, worker)


@pytest.mark.netns
@pytest.mark.parametrize("way", ["move", "drain"])
def test_a_forgotten_node_that_is_back_hands_no_removed_page_on(
    hosts: Cluster, network: Network, worker: Worker, way: str
) -> None:
    c = hosts[2]
    assert all(worker(c).set(KEYS, OLD))
    network.cut("c")
    remove_and_forget(hosts, network, worker)
    c.wait_members(["c"])
    network.heal("c")
    hosts.wait_complete()
    if way == "move":
        with AdminClient(str(c.admin_path)) as admin, suppress(Refused):
            admin.move("test", KEYS, "a")
    else:
        c.drain(stay=True)
    # Pages that c handed on would outlive it.
    c.kill()
    nobody_finds_a_removed_page(hosts, worker)


@pytest.mark.netns
def test_a_node_behind_a_firewall_that_refused_drops_what_was_removed(
    hosts: Cluster, network: Network, worker: Worker
) -> None:
    """Refused connections look as if c had ended."""
    a, b, c = hosts.daemons
    assert all(worker(c).set(KEYS, OLD))
    network.replace("c")
    wait_views(a, b)
    worker(a).remove_surely(KEYS)
    network.restore("c")
    hosts.wait_complete()
    nobody_finds_a_removed_page(hosts, worker)


@pytest.mark.parametrize("store", ["disk", pytest.param("pool file", marks=pytest.mark.slow)])
def test_two_backups_restored_one_after_the_other_bring_no_removed_page_back(
    make_cluster: MakeCluster, worker: Worker, pool_files: PoolFiles, tmp_path: Path, store: str
) -> None:
    """First state_dir alone, which is older than the pages. Then the pages alone."""
    disk = store == "disk"
    each = disk_options(tmp_path, "abc") if disk else pool_files.options(3)
    cluster = make_cluster(3, each=each)
    a, _, c = cluster.daemons
    backups = tmp_path / "backups"
    backups.mkdir()
    c.kill()
    state = [*cluster.folder.glob("removals-c.*")]
    copy(state, backups)
    c.start()
    cluster.wait_complete()
    worker(a).remove_surely(OTHERS[:20])
    assert all(worker(c).set(KEYS, OLD))
    if disk:
        wait_written(c)
    c.kill()
    pages = Path(str(c.options["disk-path" if disk else "pool-file"]))
    copy([pages], backups)
    c.start()
    cluster.wait_complete()
    worker(a).remove_surely(KEYS)

    restart_with(c, state, backups)
    cluster.wait_complete()
    # Now the position of the copied pages is one of c's journal again.
    worker(a).remove_surely(OTHERS)
    restart_with(c, [pages], backups)
    cluster.wait_complete()
    nobody_finds_a_removed_page(cluster, worker)


def restart_with(daemon: Daemon, files: Sequence[Path], backups: Path) -> None:
    daemon.kill()
    for file in files:
        shutil.rmtree(file) if file.is_dir() else file.unlink()
        copy([backups / file.name], file.parent)
    daemon.start()


def copy(files: Sequence[Path], to: Path) -> None:
    subprocess.run(["cp", "-a", *files, to], check=True)


@pytest.mark.netns
def test_a_node_whose_address_another_node_had_drops_what_was_removed(
    network: Network, make_cluster: MakeCluster, worker: Worker
) -> None:
    """The other node at its address looks like a proof that c has ended."""
    cluster = make_cluster(4, start=False)
    a, b, c, other = cluster.daemons
    trio = cluster.daemons[:3]
    head = f"{network.address('a')}:{a.meta_port}"
    for daemon in trio:
        daemon.host = network.address(daemon.node_id)
        daemon.launcher = network.launcher(daemon.node_id)
        daemon.heads = [head]
        daemon.start()
    cluster.wait_complete()
    assert all(worker(c).set(KEYS, OLD))
    other.launcher = network.replace("c")
    other.host, other.meta_port, other.heads = c.host, c.meta_port, [head]
    other.start()
    for daemon in (a, b, other):
        daemon.wait_members(["a", "b", "d"])
    worker(a).remove_surely(KEYS)
    assert other.stop() == 0
    network.restore("c")
    cluster.wait_complete()
    nobody_finds_a_removed_page(cluster, worker)


def test_a_node_that_has_left_begins_no_removal(make_cluster: MakeCluster, worker: Worker) -> None:
    """Nobody else would know of it, and nobody drives it on."""
    a, b, c = make_cluster(3).daemons
    assert all(worker(a).set(KEYS, OLD))
    c.drain(stay=False)
    wait_views(a, b)
    assert set(worker(c, timeout_s=seconds(2.0)).remove(KEYS)) == {Status.draining}
    assert c.status()["removals"]["running"] == 0
    assert all(worker(a).set(keys_of("others", 4), NEW)), "members take sets"
    assert worker(b).get(KEYS) == [OLD] * len(KEYS), "nothing was removed"


@pytest.mark.netns
def test_a_clear_that_only_a_forgotten_node_knew_hides_no_page_from_removals(
    hosts: Cluster, network: Network, worker: Worker
) -> None:
    """After a clear, keys have other digests than those that the members remove."""
    c = hosts[2]
    network.cut("c")
    c.wait_members(["c"])
    at_c = worker(c)
    assert not at_c.client.clear(), "the members were not reached"
    assert all(at_c.set(KEYS, OLD))
    remove_and_forget(hosts, network, worker)
    network.heal("c")
    hosts.wait_complete()
    nobody_finds_a_removed_page(hosts, worker)
