"""A daemon with a pool file is killed and restarted: it still has its pages."""

from pathlib import Path
from typing import Any

import pytest
from harness.background import Background
from harness.cluster import Cluster, Daemon
from harness.disks import disk_options, wait_written
from harness.fixtures import MakeCluster
from harness.pages import Pages, keys_of
from harness.secret_file import secret_file
from harness.waiting import eventually
from harness.warm_pools import PoolFiles

KEYS = keys_of("kept", 40)


def recovery(daemon: Daemon) -> dict[str, Any]:
    found: dict[str, Any] = daemon.status()["recovery"]
    return found


def again(cluster: Cluster, node: int, **options: str) -> None:
    """Kills the node with -9 and starts it again."""
    daemon = cluster[node]
    if daemon.alive:
        daemon.kill()
    daemon.options |= {name.replace("_", "-"): value for name, value in options.items()}
    cluster.start_again(daemon)


def held_here(pages: Pages) -> int:
    return sum(map(bool, pages.get(KEYS)))


def test_pages_survive_kill_9_and_are_read_by_all(
    make_cluster: MakeCluster, pool_files: PoolFiles
) -> None:
    cluster = make_cluster(3, each=pool_files.options(3))
    assert all(cluster[1].attach().set(KEYS))
    for _ in range(2):
        again(cluster, 1)
        found = recovery(cluster[1])
        assert (found["pages"], found["bytes"]) == (len(KEYS), len(KEYS) * 65_536), found
        assert cluster[1].attach().has(KEYS)
        for reader in (cluster[0], cluster[2]):
            eventually(lambda: reader.attach().has(KEYS), 10, "records at their owners")  # noqa: B023
    more = keys_of("more", 40)
    assert all(cluster[1].attach().set(more)), "it goes on as before"
    assert cluster[0].attach().has(more)


def test_a_clean_restart_keeps_them_too(make_cluster: MakeCluster, pool_files: PoolFiles) -> None:
    cluster = make_cluster(2, each=pool_files.options(2))
    assert all(cluster[0].attach().set(KEYS))
    assert cluster[0].stop() == 0
    again(cluster, 0)
    assert recovery(cluster[0])["pages"] == len(KEYS)
    assert cluster[0].attach().has(KEYS)
    eventually(lambda: cluster[1].attach().has(KEYS), 10)


def test_the_whole_cluster_restarts_warm(make_cluster: MakeCluster, pool_files: PoolFiles) -> None:
    cluster = make_cluster(3, each=pool_files.options(3))
    for node in range(3):
        assert all(cluster[node].attach().set(keys_of(f"of {node}", 20)))
    for daemon in cluster.daemons:
        daemon.kill()
    for daemon in cluster.daemons:
        daemon.start()
    cluster.wait_complete()
    for node in range(3):
        reader = cluster[(node + 1) % 3].attach()
        eventually(lambda: reader.has(keys_of(f"of {node}", 20)), 10)  # noqa: B023


def test_cleared_pages_stay_gone_after_a_full_cluster_restart(
    make_cluster: MakeCluster, pool_files: PoolFiles
) -> None:
    cluster = make_cluster(2, each=pool_files.options(2))
    assert all(cluster[0].attach().set(KEYS))
    assert cluster[1].attach().client.clear()
    for daemon in cluster.daemons:  # checks at once, before the sweep may be done
        daemon.kill()
    for daemon in cluster.daemons:
        daemon.start()
    cluster.wait_complete()
    assert held_here(cluster[0].attach()) == 0
    assert held_here(cluster[1].attach()) == 0
    assert all(cluster[0].attach().set(KEYS)), "and can be set anew"
    again(cluster, 0)
    assert cluster[0].attach().has(KEYS)
    assert cluster[1].attach().client.clear()
    eventually(lambda: cluster[0].status()["pool"]["keys"] == 0, 10, "recovered pages are swept")


def test_node_learns_of_a_missed_clear_before_it_serves(
    make_cluster: MakeCluster, pool_files: PoolFiles
) -> None:
    cluster = make_cluster(3, each=pool_files.options(3))
    away = cluster[2]
    assert all(away.attach().set(KEYS))
    away.kill()
    with cluster[0].attach() as other:
        other.client.clear()
    away.start()
    away.wait_ready()  # its socket is open: from now on it must not serve the cleared pages
    assert recovery(away)["pages"] == len(KEYS), "they were in the file"
    assert held_here(away.attach()) == 0
    cluster.wait_complete()
    assert held_here(cluster[0].attach()) == 0


@pytest.mark.parametrize(
    ("option", "value", "sentence"),
    [
        ("pool_size", "48MiB", "it was made with pool_size = 67108864 bytes"),
        ("node_id", "another", "another node_id or another cluster secret"),
    ],
)
def test_pool_file_of_another_configuration_is_dropped_with_the_reason(
    make_cluster: MakeCluster, pool_files: PoolFiles, option: str, value: str, sentence: str
) -> None:
    cluster = make_cluster(1, each=pool_files.options(1))
    assert all(cluster[0].attach().set(KEYS))
    cluster[0].kill()
    cluster[0].options[option.replace("_", "-")] = value
    cluster[0].start()
    cluster[0].wait_ready()
    status = cluster[0].status()
    assert sentence in status["recovery"]["why_fresh"]
    assert any(sentence in one["sentence"] for one in status["health"])
    assert sentence in cluster[0].log_path.read_text()
    pages = cluster[0].attach()
    assert held_here(pages) == 0
    assert all(pages.set(KEYS))


def test_another_cluster_secret_begins_empty(
    make_cluster: MakeCluster, pool_files: PoolFiles, tmp_path: Path
) -> None:
    secret = secret_file(tmp_path, b"one secret of the cluster")
    cluster = make_cluster(1, each=pool_files.options(1), cluster_secret_file=secret)
    assert all(cluster[0].attach().set(KEYS))
    secret_file(tmp_path, b"another secret, after a leak")
    again(cluster, 0)
    assert "another cluster secret" in recovery(cluster[0])["why_fresh"]
    assert held_here(cluster[0].attach()) == 0


def test_unknown_epochs_begin_empty(make_cluster: MakeCluster, pool_files: PoolFiles) -> None:
    cluster = make_cluster(1, each=pool_files.options(1))
    assert all(cluster[0].attach().set(KEYS))
    epochs = cluster[0].state_dir / f"epochs-{cluster[0].node_id}.json"
    eventually(epochs.exists, 20, "the first save of the epochs")
    cluster[0].kill()
    epochs.write_text(epochs.read_text()[:-1])
    again(cluster, 0)
    assert "cannot be read" in recovery(cluster[0])["why_fresh"]
    assert held_here(cluster[0].attach()) == 0


def test_two_daemons_on_one_file_are_one_too_many(
    make_cluster: MakeCluster, pool_files: PoolFiles
) -> None:
    cluster = make_cluster(2, start=False, each=[pool_files.options(1)[0]] * 2)
    cluster[0].start()
    cluster[0].wait_ready()
    cluster[1].start()
    assert cluster[1].wait_exit() != 0
    assert "in use by another daemon" in cluster[1].log_path.read_text()
    assert all(cluster[0].attach().set(KEYS))


@pytest.mark.parametrize("kills", [3, pytest.param(60, marks=pytest.mark.slow)])
def test_answered_sets_survive_kill_9_during_other_sets(
    make_cluster: MakeCluster, pool_files: PoolFiles, kills: int
) -> None:
    cluster = make_cluster(1, each=pool_files.options(1), pool_size="256MiB")
    answered: list[bytes] = []
    numbers = iter(range(1 << 30))

    def write() -> None:
        keys = keys_of(f"round {next(numbers)}", 4)
        statuses = writer.set(keys)
        answered.extend(key for key, status in zip(keys, statuses, strict=True) if status)

    for _ in range(kills):
        answered.clear()
        with cluster[0].attach() as writer, Background(write) as writing:
            writing.wait_rounds(20)
            cluster[0].kill()
        assert answered
        cluster[0].start()
        cluster[0].wait_ready()
        dropped = recovery(cluster[0])["dropped"]
        assert not dropped["damaged_headers"] and not dropped["damaged_payloads"], dropped
        with cluster[0].attach() as reader:
            for start in range(0, len(answered), 32):
                keys = answered[start : start + 32]
                assert reader.has(keys), "a page whose set was answered is gone"
                reader.client.remove(keys)


def test_clear_known_to_the_disk_voids_older_pool_file_pages(
    make_cluster: MakeCluster, pool_files: PoolFiles, tmp_path: Path
) -> None:
    """The node knew of the clear when it wrote the pages to disk. Its saved epochs are lost
    since."""
    cluster = make_cluster(1, each=disk_options(tmp_path, "a"))
    daemon, pool_file = cluster[0], str(pool_files[0])
    pages = daemon.attach()
    assert pages.client.clear()
    assert all(pages.set(keys_of("new", 8)))
    wait_written(daemon)
    assert daemon.stop() == 0
    with_disk = dict(daemon.options)
    for path in daemon.state_dir.glob("*epochs*"):
        path.unlink()
    for name in ("disk-enabled", "disk-path", "disk-size"):
        del daemon.options[name]
    daemon.options["pool-file"] = pool_file
    cluster.start_again(daemon)
    assert all(daemon.attach().set(keys_of("old", 8)))
    assert daemon.stop() == 0
    daemon.options |= {**with_disk, "pool-file": pool_file}
    cluster.start_again(daemon)
    assert daemon.status()["recovery"]["pages"] == 8
    again = daemon.attach()
    assert not any(again.get(keys_of("old", 8)))
    assert again.has(keys_of("new", 8))
