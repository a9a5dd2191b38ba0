"""A removal holds in the whole cluster, even if members are away while it happens.

Most tests have the same course. Pages are set at `a`, which then goes away. All are removed, and
set with other content at `b`. Then `a` returns, and all three nodes read.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from harness.background import Background
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
from peercached.admin.client import AdminClient
from peercached.cli import exits

KEYS = keys_of("changed", 40)
OLD, NEW = 1, 2

Worker = Callable[..., Versions]


def nothing_is_old(cluster: Cluster, worker: Worker, keys: Sequence[bytes] = KEYS) -> None:
    for daemon in cluster.daemons:
        old = [version for version in worker(daemon).get(keys) if version == OLD]
        assert not old, f"{len(old)} old pages at {daemon.node_id}"


def all_is_new(cluster: Cluster, worker: Worker, keys: Sequence[bytes] = KEYS) -> None:
    nothing_is_old(cluster, worker, keys)
    for daemon in cluster.daemons:
        at = worker(daemon)
        eventually(
            lambda: at.get(keys) == [NEW] * len(keys),  # noqa: B023
            10,
            f"all pages at {daemon.node_id}",
        )


def is_removing(at: Versions) -> None:
    """On a busy machine the first answer may be `deadline`: then it may have begun or not."""
    answers = (set(at.remove(KEYS)) for _ in range(5))
    assert next(each for each in answers if each != {Status.deadline}) == {Status.removing}


# --- nodes that end, and return with their pages ----------------------------------------------


def stopped(daemon: Daemon) -> None:
    assert daemon.stop(30) == 0


def left(daemon: Daemon) -> None:
    """Leaves as the manual describes it for an upgrade."""
    daemon.drain(stay=False)
    assert daemon.stop(30) == 0


def stores_of(store: str, folder: Path, files: PoolFiles) -> list[dict[str, Any]]:
    """Storage options for three nodes."""
    disks: list[dict[str, Any]] = list(disk_options(folder, "abc"))
    pools: list[dict[str, Any]] = list(files.options(3))
    if store == "both":
        return [{**disk, **pool} for disk, pool in zip(disks, pools, strict=True)]
    return disks if store == "disk" else pools


# Each end with both stores; each store alone with one end.
QUICK = (("disk", Daemon.kill), ("pool file", stopped))


@pytest.mark.parametrize(
    ("store", "end"),
    [
        pytest.param(
            store,
            end,
            marks=[] if store == "both" or (store, end) in QUICK else pytest.mark.slow,
            id=f"{store}, {name}",
        )
        for store in ("disk", "pool file", "both")
        for name, end in (("killed", Daemon.kill), ("stopped", stopped), ("left", left))
    ],
)
def test_returning_node_serves_none_of_the_pages_removed_meanwhile(
    make_cluster: MakeCluster,
    worker: Worker,
    pool_files: PoolFiles,
    tmp_path: Path,
    end: Callable[[Daemon], None],
    store: str,
) -> None:
    cluster = make_cluster(3, each=stores_of(store, tmp_path, pool_files), stop_drain_s=5)
    a, b, _ = cluster.daemons
    others = keys_of("not changed", 40)
    assert all(worker(a).set([*KEYS, *others], OLD))
    if store != "pool file":
        wait_written(a)
    end(a)
    worker(b).remove_surely(KEYS)
    assert all(worker(b).set(KEYS, NEW))
    cluster.start_again(a)
    all_is_new(cluster, worker)
    if store != "pool file" or end is Daemon.kill:
        eventually(
            lambda: worker(a).get(others) == [OLD] * len(others), 10, "what nobody removed is there"
        )


def test_returning_node_begins_empty_when_no_member_knows_the_removals(
    make_cluster: MakeCluster, worker: Worker, tmp_path: Path
) -> None:
    """All other members lost their removal state meanwhile, so they cannot know."""
    cluster = make_cluster(3, each=disk_options(tmp_path, "abc"))
    a, b, c = cluster.daemons
    assert all(worker(a).set(KEYS, OLD))
    wait_written(a)
    a.kill()
    b.wait_members(["b", "c"])
    worker(b).remove_surely(KEYS)
    for daemon in (b, c):
        daemon.kill()
        daemon.lose_removal_state()
    for daemon in (b, c):
        daemon.start()
    wait_views(b, c)
    assert all(worker(b).set(KEYS, NEW))
    cluster.start_again(a)
    all_is_new(cluster, worker)
    assert "no member knows which of them were removed" in a.log_text()


@pytest.mark.parametrize("restored", ["state_dir", "state_dir and disk"])
def test_an_old_state_dir_tells_others_nothing(
    make_cluster: MakeCluster, worker: Worker, tmp_path: Path, restored: str
) -> None:
    """The restored node knows no removals since the backup, and the other node was away."""
    cluster = make_cluster(2, each=disk_options(tmp_path, "ab"))
    a, b = cluster.daemons
    assert all(worker(a).set(KEYS, OLD))
    wait_written(a)
    stopped(b)
    files = [*cluster.folder.glob("removals-b.*")]
    if restored != "state_dir":
        files.append(tmp_path / "b.disk")
    backup = tmp_path / "backup"
    backup.mkdir()
    copy_all(files, backup)
    cluster.start_again(b)
    # Within a second a node writes down what it knows of others. Killed before, it forgets.
    start = str(int(b.status()["node"]["incarnation"], 16))
    known = cluster.folder / "removals-a.json"
    eventually(lambda: start in known.read_text(), what="a knows of this start of b")
    a.kill()
    worker(b).remove_surely(KEYS)
    assert all(worker(b).set(KEYS, NEW))
    wait_written(b)
    stopped(b)
    for file in files:
        shutil.rmtree(file) if file.is_dir() else file.unlink()
        copy_all([backup / file.name], file.parent)
    cluster.start()
    nothing_is_old(cluster, worker)
    eventually(lambda: all(not d.status()["removals"]["owes"] for d in cluster.daemons), 20)
    nothing_is_old(cluster, worker)
    if restored != "state_dir":  # else b may start first, and a drops its pages instead
        assert "state_dir is older" in b.log_text()


def test_clear_names_the_unreachable_member(make_cluster: MakeCluster, worker: Worker) -> None:
    cluster = make_cluster(3)
    a, b, c = cluster.daemons
    assert all(worker(a).set(KEYS, OLD))
    a.freeze()
    wait_views(b, c)
    assert not worker(b).clear()
    told = ctl(c, "clear", "-n", "test", "--yes")
    assert told.exit_code == exits.FAILED and "but a could not be reached" in told.output, (
        told.output
    )
    a.thaw()
    cluster.wait_complete()
    eventually(worker(b).clear)
    nothing_is_old(cluster, worker)


@pytest.mark.netns
def test_clear_voids_pages_set_after_a_clear_on_the_cut_side(
    network: Network, make_cluster: MakeCluster, worker: Worker, tmp_path: Path
) -> None:
    """The node that knew of the earlier clear has ended, so nobody here has heard of it."""
    cluster = make_cluster(2, start=False, each=disk_options(tmp_path, "ab"))
    network.start(cluster)
    a, b = cluster.daemons
    network.cut("b")
    for daemon in cluster.daemons:
        daemon.wait_members([daemon.node_id])
    assert not worker(b).clear()
    assert all(worker(b).set(KEYS, OLD))
    wait_written(b)
    b.kill()
    network.heal("b")
    eventually(worker(a).clear)
    cluster.start_again(b)
    nothing_is_old(cluster, worker)
    assert all(worker(a).set(KEYS, NEW))
    all_is_new(cluster, worker)


def test_node_restored_from_a_snapshot_serves_no_removed_pages(
    make_cluster: MakeCluster, worker: Worker, tmp_path: Path
) -> None:
    """Like a machine restored from a snapshot: no other node has met a later start of it. The node
    that removed is gone, but another member knows of the removal."""
    cluster = make_cluster(3, each=disk_options(tmp_path, "abc"))
    a, b, c = cluster.daemons
    assert all(worker(b).set(KEYS, OLD))
    wait_written(b)
    files = [*cluster.folder.glob("removals-b.*"), tmp_path / "b.disk"]
    backup = tmp_path / "backup"
    backup.mkdir()
    copy_all(files, backup)
    worker(a).remove_surely(KEYS)
    assert all(worker(c).set(KEYS, NEW))
    stopped(a)
    b.kill()
    for file in files:
        shutil.rmtree(file) if file.is_dir() else file.unlink()
        copy_all([backup / file.name], file.parent)
    b.start()
    for daemon in (b, c):
        daemon.wait_members(["b", "c"])
        assert worker(daemon).get(KEYS) == [NEW] * len(KEYS)
    assert "state_dir is older" in b.log_text()


def copy_all(files: Sequence[Path], to: Path) -> None:
    subprocess.run(["cp", "-a", *files, to], check=True)


def test_full_cluster_kill_keeps_pages_that_were_not_removed(
    make_cluster: MakeCluster, worker: Worker, tmp_path: Path
) -> None:
    cluster = make_cluster(3, each=disk_options(tmp_path, "abc"))
    others = keys_of("not changed", 40)
    a, b, _ = cluster.daemons
    assert all(worker(a).set([*KEYS, *others], OLD))
    wait_written(a)
    worker(b).remove_surely(KEYS)
    assert all(worker(b).set(KEYS, NEW))
    wait_written(b)
    for daemon in cluster.daemons:
        daemon.kill()
    cluster.start()
    all_is_new(cluster, worker)
    eventually(lambda: worker(a).get(others) == [OLD] * len(others), 10, "what was not removed")


def test_pages_are_held_back_until_the_last_survivor_returns(
    make_cluster: MakeCluster, worker: Worker, tmp_path: Path
) -> None:
    cluster = make_cluster(2, each=disk_options(tmp_path, "ab"))
    a, b = cluster.daemons
    a.heads = b.heads = [a.address, b.address]
    others = keys_of("not changed", 40)
    assert all(worker(a).set([*KEYS, *others], OLD))
    wait_written(a)
    a.kill()
    b.wait_members(["b"])
    worker(b).remove_surely(KEYS)
    assert all(worker(b).set(KEYS, NEW))
    wait_written(b)
    b.kill()

    for _ in range(2):
        a.start()
        a.wait_ready()
        assert a.status()["removals"]["held_back_for"] == ["b"]
        assert "held back" in a.sentences()
        at_a = worker(a)
        assert at_a.get([*KEYS, *others]) == [None] * 80
        fresh = keys_of("set meanwhile", 40)
        assert all(at_a.set(fresh, NEW))
        assert at_a.get(fresh) == [NEW] * 40
        a.kill()
    a.start()
    cluster.start_again(b)
    eventually(lambda: not a.status()["removals"]["held_back_for"], 20)
    all_is_new(cluster, worker)
    for daemon in cluster.daemons:
        eventually(lambda: worker(daemon).get(others) == [OLD] * 40, 20)  # noqa: B023


def test_removal_is_not_confirmed_while_the_last_survivor_is_away(
    make_cluster: MakeCluster, worker: Worker, tmp_path: Path
) -> None:
    """The last survivor asks nobody for missed removals, because it knows that it was the last."""
    cluster = make_cluster(2, each=disk_options(tmp_path, "ab"))
    a, b = cluster.daemons
    a.heads = b.heads = [a.address, b.address]
    assert all(worker(b).set(KEYS, OLD))
    wait_written(b)
    a.kill()
    b.wait_members(["b"])
    worker(b).remove_surely(keys_of("another", 3))  # finds that a has ended
    b.kill()
    a.start()
    a.wait_ready()
    at_a = worker(a, timeout_s=seconds(2.0))
    is_removing(at_a)
    assert set(at_a.set(KEYS, NEW)) == {Status.removing}
    missing = {"b": "it may have been the last to stop, and is not back"}
    assert a.status()["removals"]["missing"] == missing
    a.kill()
    b.start()
    b.wait_ready()
    assert worker(b).get(KEYS) == [OLD] * len(KEYS), "nobody was told that they are gone"
    cluster.start_again(a)
    eventually(lambda: not a.status()["removals"]["owes"], 20)
    eventually(lambda: not a.status()["removals"]["unsure"], 20, "it has gone on by itself")
    assert worker(b).get(KEYS) == worker(a).get(KEYS) == [None] * len(KEYS)
    eventually(lambda: all(d.status()["removals"]["running"] == 0 for d in cluster.daemons), 20)
    assert all(worker(a).set(KEYS, NEW))
    all_is_new(cluster, worker)


# --- nodes that are alive but unreachable -----------------------------------------------------


def test_removal_is_not_confirmed_while_a_holder_is_frozen(
    make_cluster: MakeCluster, worker: Worker
) -> None:
    cluster = make_cluster(3)
    a, b, _ = cluster.daemons
    assert all(worker(a).set(KEYS, OLD))
    at_b = worker(b, timeout_s=seconds(3.0))
    a.freeze()
    for _ in range(2):  # first a silent member, then one out of the view
        is_removing(at_b)
        assert set(at_b.set(KEYS, NEW)) == {Status.removing}, "it would be older than what a has"
        b.wait_members(["b", "c"])
    removals = b.status()["removals"]
    assert removals["missing"] == {"a": "it vanished without a goodbye"}
    assert removals["unsure"] >= 2 * len(KEYS)
    assert "a: it vanished without a goodbye" in b.sentences()
    a.thaw()
    cluster.wait_complete()
    eventually(lambda: not b.status()["removals"]["unsure"], 20, "it goes on by itself")
    eventually(lambda: all(d.status()["removals"]["running"] == 0 for d in cluster.daemons), 20)
    for daemon in cluster.daemons:
        assert worker(daemon).get(KEYS) == [None] * len(KEYS)
    assert all(at_b.set(KEYS, NEW))
    all_is_new(cluster, worker)


def test_removal_survives_the_death_of_the_node_driving_it(
    make_cluster: MakeCluster, worker: Worker
) -> None:
    cluster = make_cluster(3)
    a, b, c = cluster.daemons
    assert all(worker(a).set(KEYS, OLD))
    a.freeze()
    at_b = worker(b, timeout_s=seconds(3.0))
    is_removing(at_b)
    b.kill()
    c.wait_members(["c"])
    assert set(worker(c).set(KEYS, NEW)) == {Status.removing}, "it is remembered by others"
    b.start()
    b.wait_members(["b", "c"])
    assert set(worker(b).set(KEYS, NEW)) == {Status.removing}, "and after a restart"
    a.thaw()
    cluster.wait_complete()
    eventually(
        lambda: all(d.status()["removals"]["running"] == 0 for d in cluster.daemons),
        60,
        "somebody drives it on",
    )
    assert all(worker(c).set(KEYS, NEW))
    all_is_new(cluster, worker)


@pytest.mark.netns
def test_a_removal_waits_for_a_host_that_is_cut_off(
    network: Network, hosts: Cluster, worker: Worker
) -> None:
    a, b, _ = hosts.daemons
    at_a = worker(a)
    assert all(at_a.set(KEYS, OLD))
    network.cut("a")
    b.wait_members(["b", "c"])
    at_b = worker(b, timeout_s=seconds(2.0))
    is_removing(at_b)
    assert at_a.get(KEYS) == [OLD] * len(KEYS), "it serves its own workers"
    network.heal("a")
    hosts.wait_complete()
    at_b.remove_surely(KEYS)
    assert all(at_b.set(KEYS, NEW))
    all_is_new(hosts, worker)


@pytest.mark.netns
def test_a_removal_waits_until_all_owners_have_heard_it_of_the_holder(
    network: Network, on_hosts: MakeCluster, worker: Worker
) -> None:
    """Old records from the holder may still reach an owner, which would name the holder to
    readers."""
    cluster = on_hosts(directory_replicas=1)
    _, b, c = cluster.daemons
    assert all(worker(b).set(KEYS, OLD))
    at_c = worker(c, timeout_s=seconds(2.0))
    assert at_c.get(KEYS) == [OLD] * len(KEYS)
    network.part("a", "b")
    is_removing(at_c)
    missing = {"b": "it has not told a yet"}
    eventually(lambda: c.status()["removals"]["missing"] == missing, 10)
    assert not any(at_c.contains(KEYS))
    network.meet("a", "b")
    eventually(lambda: not c.status()["removals"]["unsure"], 20, "it goes on by itself")
    assert not any(at_c.contains(KEYS))
    assert all(at_c.set(KEYS, NEW))
    all_is_new(cluster, worker)


@pytest.mark.netns
def test_members_are_asked_again_when_a_missing_owner_returns(
    network: Network, on_hosts: MakeCluster, worker: Worker
) -> None:
    """The other members' earlier answers did not cover it."""
    cluster = on_hosts(directory_replicas=1)
    a, b, _ = cluster.daemons
    assert all(worker(b).set(KEYS, OLD))
    at_a = worker(a, timeout_s=seconds(2.0))
    assert at_a.get(KEYS) == [OLD] * len(KEYS)
    network.cut("c")
    a.wait_members("ab")
    b.wait_members("ab")
    is_removing(at_a)
    eventually(lambda: a.status()["removals"]["missing"].keys() == {"c"}, 10, "b has answered")
    network.heal("c")
    eventually(lambda: not a.status()["removals"]["unsure"], 20, "it goes on by itself")
    assert all(at_a.set(KEYS, NEW))
    all_is_new(cluster, worker)


@pytest.mark.netns
def test_removal_waits_for_a_node_started_behind_the_partition(
    network: Network, on_hosts: MakeCluster, worker: Worker, tmp_path: Path
) -> None:
    """The member that admitted it has ended, so only its own host can report it."""
    cluster = on_hosts(each=disk_options(tmp_path, "abc"))
    a, b, c = cluster.daemons
    network.split(["a", "b"])
    for daemon, members in ((a, "ab"), (b, "ab"), (c, "c")):
        daemon.wait_members(list(members))
    a.kill()
    b.wait_members(["b"])
    a.start()
    a.wait_members(["a", "b"])
    eventually(lambda: not a.status()["removals"]["owes"], 20)
    assert all(worker(a).set(KEYS, OLD))
    b.kill()
    network.unite(["b"])  # its host refuses the connection
    at_c = worker(c, timeout_s=seconds(3.0))
    is_removing(at_c)
    assert c.status()["removals"]["missing"] == {"a": "it vanished without a goodbye"}
    network.unite(["a"])
    a.wait_members(["a", "c"])
    at_c.remove_surely(KEYS)
    assert worker(a).get(KEYS) == [None] * len(KEYS)


@pytest.mark.netns
def test_a_host_that_is_gone_for_good_can_be_forgotten(
    network: Network, hosts: Cluster, worker: Worker
) -> None:
    a, b, c = hosts.daemons
    assert all(worker(a).set(KEYS, OLD))
    network.cut("a")
    a.kill()
    b.wait_members(["b", "c"])
    c.wait_members(["b", "c"])
    at_b = worker(b, timeout_s=seconds(2.0))
    is_removing(at_b)
    assert ctl(b, "forget", "a").exit_code == exits.USAGE, "without --yes"
    assert ctl(b, "forget", "c", "--yes").exit_code == exits.FAILED, "it is a member"
    assert json.loads(ctl(b, "forget", "a", "--yes", "--json").stdout)["unreached"] == []
    eventually(lambda: not b.status()["removals"]["unsure"], 20)
    assert all(worker(c).set(KEYS, NEW))


def test_a_frozen_node_cannot_be_forgotten(make_cluster: MakeCluster, worker: Worker) -> None:
    """When it goes on it beats again, is a member again, and has the removed pages."""
    a, b, c = make_cluster(3).daemons
    assert all(worker(a).set(KEYS, OLD))
    a.freeze()
    wait_views(b, c)
    at_b = worker(b, timeout_s=seconds(2.0))
    is_removing(at_b)
    for daemon in (b, c):
        refused = ctl(daemon, "forget", "a", "--yes")
        assert refused.exit_code == exits.FAILED, refused.output
        assert f"something still takes connections at {a.address}" in refused.stderr
    assert b.status()["removals"]["missing"] == {"a": "it vanished without a goodbye"}
    a.thaw()
    a.wait_members(["a", "b", "c"])
    assert ctl(b, "forget", "a", "--yes").exit_code == exits.FAILED, "it is a member"
    at_b.remove_surely(KEYS)
    assert worker(a).get(KEYS) == [None] * len(KEYS)


@pytest.mark.netns
def test_a_forgotten_node_that_comes_back_has_no_removed_page(
    network: Network, hosts: Cluster, worker: Worker
) -> None:
    """The operator was wrong: it was only cut off, and goes on beating."""
    a, b, c = hosts.daemons
    assert all(worker(a).set(KEYS, OLD))
    network.cut("a")
    wait_views(b, c)
    at_b = worker(b, timeout_s=seconds(2.0))
    is_removing(at_b)
    assert ctl(b, "forget", "a", "--yes").exit_code == exits.OK
    at_b.remove_surely(KEYS)
    network.heal("a")
    wait_views(a, b, c)
    for daemon in (b, c, a):
        assert worker(daemon).get(KEYS) == [None] * len(KEYS)
    eventually(lambda: "pages were removed while this node was" in a.log_text(), 30)
    eventually(lambda: all(worker(a).set(KEYS, NEW)), 30)
    # No late removal takes pages that are set from now on. A set does not wait for an owner that
    # has no lease yet, so these pages may come to c a moment later.
    assert all(worker(a).set(KEYS, NEW))
    at_c = worker(c)
    eventually(lambda: all(page is not None for page in at_c.get(KEYS)), 20)


# --- draining nodes ---------------------------------------------------------------------------


def test_a_drained_node_that_stays_is_asked(
    make_cluster: MakeCluster, worker: Worker, tmp_path: Path
) -> None:
    cluster = make_cluster(3, each=disk_options(tmp_path, "abc"))
    a, b, _ = cluster.daemons
    assert all(worker(a).set(KEYS, OLD))
    wait_written(a)
    a.drain(stay=True)
    worker(b).remove_surely(KEYS)
    assert all(worker(b).set(KEYS, NEW))
    all_is_new(cluster, worker)
    with AdminClient(str(a.admin_path)) as admin:
        admin.undrain()
    all_is_new(cluster, worker)


def test_a_node_that_has_left_serves_nothing_that_it_has_still(
    make_cluster: MakeCluster, worker: Worker, tmp_path: Path
) -> None:
    a, b, _ = make_cluster(3, each=disk_options(tmp_path, "abc")).daemons
    at_a = worker(a)
    assert all(at_a.set(KEYS, OLD))
    wait_written(a)
    a.drain(stay=False)
    worker(b).remove_surely(KEYS)
    assert at_a.get(KEYS) == [None] * len(KEYS)
    assert not any(at_a.client.contains(KEYS))
    assert set(at_a.remove(KEYS)) == {Status.draining}, "no member would hear of it"


def test_no_removal_is_undone_by_a_drain(make_cluster: MakeCluster, worker: Worker) -> None:
    """Other nodes take the pages over while they are removed."""
    cluster = make_cluster(3)
    a, b, _ = cluster.daemons
    keys = keys_of("drained", 4096)
    at_a, at_b = worker(a), worker(b)
    for first in range(0, len(keys), 256):
        assert all(at_a.set(keys[first : first + 256], OLD))
    gone: list[bytes] = []

    def remove_some() -> None:
        some = keys[len(gone) : len(gone) + 64]
        if some:
            at_b.remove_surely(some)
            gone.extend(some)

    with Background(remove_some) as removing:
        removing.wait_rounds(1)
        a.drain(stay=True)
        eventually(lambda: len(gone) == len(keys), 60, "all to be removed")
    for daemon in cluster.daemons:
        at = worker(daemon)
        for first in range(0, len(keys), 256):
            assert at.get(keys[first : first + 256]) == [None] * 256, "removals were undone"
