"""A confirmed removal holds, whatever happens to the daemon, its files and its disk."""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from harness.background import Background
from harness.cluster import Cluster, Daemon
from harness.disks import disk_of, disk_options, fill, found, wait_written
from harness.fixtures import MakeCluster
from harness.pages import Pages, keys_of
from harness.warm_pools import PoolFiles

from peercache_client import Status
from peercached.admin.client import AdminClient

POOL = "8MiB"  # 120 pages of 64 KiB
KEYS = keys_of("removed", 32)
OTHERS = keys_of("not removed", 32)


def journal_of(daemon: Daemon) -> Path:
    return daemon.state_dir / f"removals-{daemon.node_id}.log"


def test_a_removal_of_invalid_keys_alone_is_over_at_once(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(2)
    pages = cluster[0].attach()
    assert pages.client.remove([b"", b"k" * 5000]) == [Status.bad_key] * 2
    removals = cluster[0].status()["removals"]
    assert removals["running"] == removals["unsure"] == 0


def test_page_evicted_just_before_its_removal_is_not_found_afterwards(
    make_cluster: MakeCluster,
) -> None:
    """Owners learn of an eviction some milliseconds later."""
    cluster = make_cluster(3, directory_copies=0)
    holder, remover, reader = (daemon.attach() for daemon in cluster.daemons)
    with AdminClient(str(cluster[0].admin_path)) as admin:
        for key in keys_of("evicted", 40):
            assert all(holder.set([key]))
            admin.evict("test", [key])
            assert remover.client.remove([key])[0] in (Status.ok, Status.absent)
            assert reader.client.batch_exists([key]) == 0


def restart(cluster: Cluster, stop: Callable[[Daemon], object], **options: Any) -> None:
    """Restarts with other options. None restores an option's default."""
    [daemon] = cluster.daemons
    stop(daemon)
    for name, value in options.items():
        daemon.options.pop(name.replace("_", "-"), None)
        if value is not None:
            daemon.options[name.replace("_", "-")] = value
    cluster.start_again(daemon)


def stopped(daemon: Daemon) -> None:
    assert daemon.stop() == 0


ENDS = pytest.mark.parametrize("end", [stopped, Daemon.kill], ids=["stopped", "killed"])


def with_disk(make_cluster: MakeCluster, folder: Path) -> Cluster:
    """A cluster with KEYS and OTHERS on its disk."""
    cluster = make_cluster(1, pool_size=POOL, each=disk_options(folder, "a"))
    fill(cluster[0], cluster[0].attach(), [*KEYS, *OTHERS])
    return cluster


def remove_all(pages: Pages, keys: Sequence[bytes] = KEYS) -> None:
    assert all(pages.client.remove(keys))


def none_is_back(cluster: Cluster, *, others: bool = True) -> None:
    pages = cluster[0].attach()
    assert found(pages, KEYS) == 0, "removed pages are back"
    if others:
        assert found(pages, OTHERS) == len(OTHERS), "pages are lost that nobody removed"


@ENDS
def test_a_removal_outlives_the_end_of_a_daemon_with_a_disk(
    make_cluster: MakeCluster, tmp_path: Path, end: Callable[[Daemon], object]
) -> None:
    cluster = with_disk(make_cluster, tmp_path)
    remove_all(cluster[0].attach())
    restart(cluster, end)
    none_is_back(cluster)
    fill(cluster[0], cluster[0].attach(), KEYS)
    restart(cluster, end)
    assert found(cluster[0].attach(), KEYS) == len(KEYS), "what is set behind a removal stays"


@ENDS
@pytest.mark.parametrize("fault", ["disk_write_stall=1,disk_stall_ms=4000", "disk_no_space=1"])
def test_a_removal_holds_that_a_hung_or_full_disk_does_not_take(
    make_cluster: MakeCluster, tmp_path: Path, end: Callable[[Daemon], object], fault: str
) -> None:
    cluster = with_disk(make_cluster, tmp_path)
    restart(cluster, stopped, faults=fault)
    remove_all(cluster[0].attach())
    restart(cluster, end, faults=None)
    none_is_back(cluster)


def test_a_removal_reaches_a_disk_that_was_switched_off(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    cluster = with_disk(make_cluster, tmp_path)
    [disk] = disk_options(tmp_path, "a")
    restart(cluster, stopped, **dict.fromkeys(disk))
    cluster[0].attach().client.remove(KEYS)
    restart(cluster, stopped, **disk)
    none_is_back(cluster)


def test_a_removal_reaches_a_folder_that_was_moved_and_moved_back(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    cluster = with_disk(make_cluster, tmp_path)
    folder, away = tmp_path / "a.disk", tmp_path / "away"
    stopped(cluster[0])
    folder.rename(away)
    restart(cluster, lambda daemon: None)
    cluster[0].attach().client.remove(KEYS)
    stopped(cluster[0])
    shutil.rmtree(folder)
    away.rename(folder)
    restart(cluster, lambda daemon: None)
    none_is_back(cluster)


def test_a_removal_reaches_a_folder_that_comes_from_a_backup(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    cluster = with_disk(make_cluster, tmp_path)
    folder, backup = tmp_path / "a.disk", tmp_path / "backup"
    stopped(cluster[0])
    shutil.copytree(folder, backup)
    restart(cluster, lambda daemon: None)
    remove_all(cluster[0].attach())
    stopped(cluster[0])
    shutil.rmtree(folder)
    backup.rename(folder)
    restart(cluster, lambda daemon: None)
    none_is_back(cluster)


@pytest.mark.parametrize("lost", [False, True], ids=["from a backup", "lost"])
def test_stale_or_lost_journal_never_lets_removed_pages_be_served(
    make_cluster: MakeCluster, tmp_path: Path, lost: bool
) -> None:
    cluster = with_disk(make_cluster, tmp_path)
    journal, backup = journal_of(cluster[0]), tmp_path / "backup"
    shutil.copy(journal, backup)
    remove_all(cluster[0].attach())
    stopped(cluster[0])
    journal.unlink()
    if not lost:
        backup.rename(journal)
    restart(cluster, lambda daemon: None)
    none_is_back(cluster, others=False)
    assert "state_dir" in disk_of(cluster[0])["recovery_emptied"]
    pages = cluster[0].attach()
    fill(cluster[0], pages, OTHERS)
    restart(cluster, stopped)
    none_is_back(cluster)


def test_removals_under_load_hold_over_kills(make_cluster: MakeCluster, tmp_path: Path) -> None:
    cluster = make_cluster(1, pool_size=POOL, each=disk_options(tmp_path, "a"))
    removed: list[bytes] = []
    for round_ in range(3):
        writer, remover = cluster[0].attach(), cluster[0].attach()
        at_work = keys_of(f"at work {round_}", 64)
        doomed = keys_of(f"doomed {round_}", 64)
        fill(cluster[0], writer, doomed)
        with Background(lambda: writer.set(at_work)) as writing:  # noqa: B023
            for key in doomed:
                if all(remover.client.remove([key])):
                    removed.append(key)
            writing.wait_rounds(1)
            cluster[0].kill()
        restart(cluster, lambda daemon: None)
        assert found(cluster[0].attach(), removed) == 0, "removed pages are back"
    assert len(removed) > 100


@ENDS
def test_a_removal_reaches_a_pool_file(
    make_cluster: MakeCluster, pool_files: PoolFiles, end: Callable[[Daemon], object]
) -> None:
    cluster = make_cluster(1, pool_size=POOL, each=pool_files.options(1))
    pages = cluster[0].attach()
    assert all(pages.set([*KEYS, *OTHERS]))
    remove_all(pages)
    restart(cluster, end)
    none_is_back(cluster)
    restart(cluster, end, pool_file=None)
    cluster[0].attach().client.remove(OTHERS)
    restart(cluster, end, pool_file=str(pool_files[0]))
    assert found(cluster[0].attach(), OTHERS) == 0, "it was switched off for one start"


def test_old_disk_pages_never_replace_pool_file_pages_after_a_kill(
    make_cluster: MakeCluster, pool_files: PoolFiles, tmp_path: Path
) -> None:
    [disk], [file] = disk_options(tmp_path, "a"), pool_files.options(1)
    cluster = make_cluster(1, pool_size=POOL, each=[{**disk, **file}])
    client = cluster[0].attach().client
    keys = [key.decode() for key in KEYS]
    size = 65_536
    for key in keys:
        assert client.set(key, b"1" * size)
    wait_written(cluster[0])
    # From now on the disk accepts no writes.
    restart(cluster, Daemon.kill, faults="disk_write_stall=1,disk_stall_ms=4000")
    client = cluster[0].attach().client
    assert all(client.remove(keys))
    for key in keys:
        assert client.set(key, b"2" * size)
    restart(cluster, Daemon.kill, faults=None)
    pages = cluster[0].attach()
    new = [pages.client.get(key, size) for key in keys]
    assert set(new) <= {b"2" * size, None}
    assert new.count(None) == 0, "what was set anew is in the pool's file"
    for round_ in range(4):  # evicts all those pages
        assert all(pages.set(keys_of(f"others {round_}", 64)))
    assert {pages.client.get(key, size) for key in keys} <= {b"2" * size, None}
