"""Real file systems that are full or read-only, and segment files that are damaged or foreign."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.disks import disk_of, disk_options, fill, found, wait_written
from harness.fixtures import MakeCluster
from harness.pages import keys_of
from harness.waiting import eventually

from peercache_bench.daemons import ClusterError
from peercached.admin.client import AdminClient

POOL = "8MiB"  # 120 pages of 64 KiB


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A separate file system of 24 MiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", folder],
        capture_output=True,
        check=False,
        text=True,
    )
    if mounted.returncode:
        pytest.skip(f"a file system can be mounted by root only: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def test_full_file_system_is_reported_and_used_again_once_freed(
    make_cluster: MakeCluster, small: Path
) -> None:
    """disk_size exceeds the free space, because another program's file takes half of the file
    system."""
    other = small / "ballast"
    other.write_bytes(bytes(12 << 20))
    cluster = make_cluster(1, pool_size=POOL, each=disk_options(small, "a", disk_size="20MiB"))
    node, keys = cluster[0], keys_of("full", 480)
    pages = node.attach()
    for at in range(0, len(keys), 16):
        assert all(pages.set(keys[at : at + 16]))
        wait_written(node)
    eventually(lambda: disk_of(node)["state"] == "read_only", 30)
    assert "No space left" in disk_of(node)["why"]
    assert "takes no new pages" in node.sentences()
    assert pages.has(keys[-64:]), "the pool goes on"
    wait_written(node)
    before = disk_of(node)["pages"]
    assert found(pages, keys) >= before > 0, "what is on the disk is still read"

    other.unlink()
    eventually(lambda: disk_of(node)["state"] == "on", 90)
    eventually(lambda: "is in use again" in node.log_path.read_text(), 20)
    written = disk_of(node)["pages_written"]
    assert all(pages.set(keys_of("room", 32)))
    eventually(lambda: disk_of(node)["pages_written"] == written + 32, 20)
    assert "takes no new pages" not in node.sentences()


def test_a_read_only_file_system_is_a_clear_error_at_start(
    make_cluster: MakeCluster, small: Path
) -> None:
    cluster = make_cluster(1, pool_size=POOL, each=disk_options(small, "a"), start=False)
    subprocess.run(["mount", "-o", "remount,ro", small], check=True)
    cluster[0].start()
    with pytest.raises(ClusterError, match="exited"):
        cluster[0].wait_ready(20)
    assert "a.disk" in cluster[0].log_tail()
    assert "Read-only file system" in cluster[0].log_tail()


def test_foreign_and_truncated_segments_are_reported_and_cost_only_their_pages(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    cluster = make_cluster(
        2, pool_size=POOL, rpc_timeout_ms=5000, each=disk_options(tmp_path, "ab")
    )
    ours, theirs = keys_of("ours", 640), keys_of("theirs", 64)
    fill(cluster[0], cluster[0].attach(), ours)
    fill(cluster[1], cluster[1].attach(namespace="theirs"), theirs)
    for daemon in cluster.daemons:
        daemon.kill()
    mine = sorted((tmp_path / "a.disk").glob("segment-*"))
    assert len(mine) > 1, "one that is whole, and one to be spoilt"
    foreign = next((tmp_path / "b.disk").glob("segment-*"))
    shutil.copy(foreign, tmp_path / "a.disk" / "segment-0000000900.log")
    with mine[0].open("r+b") as spoilt:
        spoilt.truncate(mine[0].stat().st_size // 3 + 77)
    cluster[0].start()
    cluster[0].wait_ready()
    with AdminClient(str(cluster[0].admin_path)) as admin:
        admin.forget_node("b")  # b may know of removals, and it will not return
    eventually(lambda: not cluster[0].status()["removals"]["owes"])
    disk = disk_of(cluster[0])
    assert disk["recovery_rejected"] == 1
    assert disk["recovery_corrupt"] <= 1, "the record that was cut through"
    assert "belong to another daemon" in cluster[0].sentences()
    eventually(lambda: "deleted 1 segment files" in cluster[0].log_path.read_text(), 20)
    assert 0 < disk["recovered_pages"] < 640
    pages = cluster[0].attach(timeout_s=10.0)
    assert found(pages, ours) == disk["recovered_pages"], "all that it counts, and right bytes"
    assert not found(cluster[0].attach(namespace="theirs", timeout_s=10.0), theirs)
