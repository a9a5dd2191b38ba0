"""Disks that hang, fail or are full, under real daemons: sets continue, and health reports it."""

from pathlib import Path

import pytest
from harness.clock import now_s, seconds
from harness.cluster import Cluster
from harness.disks import disk_of, disk_options, fill, found, wait_written
from harness.fixtures import MakeCluster
from harness.pages import Pages, keys_of
from harness.waiting import eventually

from peercache_client import Status

POOL = "8MiB"  # 120 pages of 64 KiB


def with_faults(make_cluster: MakeCluster, folder: Path, faults: str) -> Cluster:
    options = disk_options(folder, "a", faults=faults)
    return make_cluster(2, pool_size=POOL, rpc_timeout_ms=5000, each=options)


def slowest_set_s(pages: Pages, keys: list[bytes]) -> float:
    slowest = 0.0
    for at in range(0, len(keys), 8):
        began = now_s()
        assert all(pages.set(keys[at : at + 8]))
        slowest = max(slowest, now_s() - began)
    return slowest


def test_sets_do_not_wait_for_a_disk_that_hangs(make_cluster: MakeCluster, tmp_path: Path) -> None:
    """Sets eight pools of pages while every disk write hangs for a minute. No set waits for the
    disk."""
    cluster = with_faults(make_cluster, tmp_path, "disk_write_stall=1,disk_stall_ms=60000")
    pages = cluster[0].attach(timeout_s=10.0)
    assert slowest_set_s(pages, keys_of("stall", 960)) < min(seconds(10), 30)
    disk = disk_of(cluster[0])
    assert disk["skipped_full"] > 0, "what the queue has no room for is in memory only"
    assert disk["queued_bytes"] <= 8 << 20, "and the queue never has more than its part of the pool"
    assert pages.has(keys_of("stall", 960)[-8:])
    assert cluster[1].attach().has(keys_of("stall", 960)[-8:])
    cluster[0].kill()


@pytest.mark.parametrize("fault", ["disk_write_eio", "disk_no_space"])
def test_unwritable_disk_is_reported_and_the_pool_keeps_serving(
    make_cluster: MakeCluster, tmp_path: Path, fault: str
) -> None:
    cluster = with_faults(make_cluster, tmp_path, f"{fault}=1")
    pages, keys = cluster[0].attach(), keys_of("refused", 64)
    assert all(pages.set(keys))
    eventually(lambda: disk_of(cluster[0])["state"] == "read_only", 20)
    assert "takes no new pages" in cluster[0].sentences()
    eventually(lambda: "takes no new pages" in cluster[0].log_path.read_text(), 20)
    assert disk_of(cluster[0])["write_errors"] > 0
    assert disk_of(cluster[0])["pages"] == 0
    assert pages.has(keys)
    assert cluster[1].attach().has(keys)


@pytest.mark.parametrize("fault", ["disk_read_eio=0.3", "disk_read_corrupt=0.3"])
def test_unreadable_disk_pages_are_misses_never_wrong_bytes(
    make_cluster: MakeCluster, tmp_path: Path, fault: str
) -> None:
    cluster = with_faults(make_cluster, tmp_path, f"seed=3,{fault}")
    keys = keys_of("unread", 240)
    fill(cluster[0], cluster[0].attach(), keys)
    wait_written(cluster[0])
    got = found(cluster[1].attach(timeout_s=10.0), keys)  # also compares the bytes
    assert 0 < got < 240
    disk = disk_of(cluster[0])
    assert disk["reads_failed"] + disk["reads_corrupt"] > 0
    eventually(lambda: "damaged or unreadable pages" in cluster[0].log_path.read_text(), 20)


def test_pages_on_a_hung_disk_are_errors_locally_and_at_peers(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    """`absent` or `stale` would hide the disk problem in the metrics."""
    cluster = with_faults(make_cluster, tmp_path, "disk_read_stall=1,disk_stall_ms=60000")
    keys = keys_of("asleep", 240)  # two pools of pages, so the first ones are only on disk
    fill(cluster[0], cluster[0].attach(), keys)
    reader = cluster[1].attach(timeout_s=2.0)
    eventually(lambda: reader.client.batch_exists(keys[:4]) == 4)
    assert set(reader.get(keys[:4])) == {Status.error}
    assert set(cluster[0].attach(timeout_s=2.0).get(keys[:4])) == {Status.error}
    eventually(lambda: disk_of(cluster[0])["state"] == "stalled", 20)
    assert set(cluster[0].attach().get(keys[4:8])) == {Status.error}, "refused at once"
    cluster[0].kill()
