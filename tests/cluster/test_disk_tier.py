"""The disk tier in a cluster: evicted pages come back, on every node, even after restarts."""

import random
from pathlib import Path

import pytest
from harness.background import Background
from harness.cluster import Cluster, Daemon
from harness.disks import disk_of, disk_options, fill, found, wait_written
from harness.fixtures import MakeCluster
from harness.pages import keys_of
from harness.waiting import eventually

from peercache_bench.daemons import ClusterError

POOL = "8MiB"  # 120 pages of 64 KiB
PAGES = 480


def operations(daemon: Daemon) -> dict[str, int]:
    counted: dict[str, int] = daemon.status()["operations"]
    return counted


def test_disk_tier_serves_peers_before_and_after_kills_and_restarts(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    cluster = make_cluster(
        2, pool_size=POOL, rpc_timeout_ms=5000, each=disk_options(tmp_path, "ab")
    )
    keys = keys_of("four pools", PAGES)
    with cluster[0].attach(timeout_s=10.0) as writer:
        fill(cluster[0], writer, keys)
    reader = cluster[1].attach(timeout_s=10.0)
    assert found(reader, keys) == PAGES
    assert operations(cluster[1])["get_peer_disk"] >= PAGES / 2
    disk = disk_of(cluster[0])
    assert disk["promoted"] >= PAGES / 2
    assert disk["copied_bytes_read"] == disk["payload_bytes_read"], "one copy a page, no more"
    assert disk["disk_reads"] <= disk["pages_read"], "one read a page, or one for several"

    cluster[0].kill()
    cluster.start_again(cluster[0])
    assert disk_of(cluster[0])["recovered_pages"] >= PAGES * 0.95
    again = found(reader, keys)
    assert again >= PAGES * 0.95, f"{PAGES - again} pages that were on disk are lost"

    for daemon in cluster.daemons:
        daemon.kill()
    for daemon in cluster.daemons:
        daemon.start()
    cluster.wait_complete()
    assert found(cluster[1].attach(timeout_s=10.0), keys) >= PAGES * 0.95
    own = cluster[0].attach(timeout_s=10.0)
    assert found(own, keys) >= PAGES * 0.95
    assert operations(cluster[0])["get_disk"] > 0


def test_exists_finds_pages_on_disks_and_has_them_warmed(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    cluster = make_cluster(2, pool_size=POOL, rpc_timeout_ms=5000, each=disk_options(tmp_path, "a"))
    keys = keys_of("cold", PAGES)
    fill(cluster[0], cluster[0].attach(), keys)
    reader = cluster[1].attach(timeout_s=10.0)
    first = keys[:16]  # evicted long ago
    assert reader.client.batch_exists(keys) == PAGES
    assert reader.client.batch_exists(first) == 16
    for worker in (reader, cluster[0].attach()):
        assert worker.client.lengths([*first, "nowhere"]) == [worker.page_bytes] * 16 + [0]
    eventually(lambda: disk_of(cluster[0])["warmed"] >= 16, 20)
    before = operations(cluster[1])["get_remote"]
    assert found(reader, first) == 16
    assert operations(cluster[1])["get_remote"] + operations(cluster[1])["get_peer_disk"] > before
    assert cluster[0].attach().client.batch_exists(keys) == PAGES


def test_removed_and_cleared_pages_leave_disks_and_stay_gone_after_restart(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    cluster = make_cluster(2, pool_size=POOL, rpc_timeout_ms=5000, each=disk_options(tmp_path, "a"))
    keys = keys_of("kept", PAGES)
    writer, other = cluster[0].attach(), cluster[1].attach()
    fill(cluster[0], writer, keys)
    gone = keys[:32]
    assert all(other.client.remove(gone))
    assert found(other, gone) == found(writer, gone) == 0
    eventually(lambda: disk_of(cluster[0])["pages"] <= PAGES - 32, 10)
    cleared = cluster[0].attach(namespace="cleared")
    fill(cluster[0], cleared, keys_of("cleared", PAGES // 2))
    cleared.client.clear()
    assert found(cleared, keys_of("cleared", PAGES // 2)) == 0
    assert found(writer, keys[32:]) == PAGES - 32
    wait_written(cluster[0])
    cluster[0].stop()
    cluster.start_again(cluster[0])
    assert found(cluster[1].attach(timeout_s=10.0), gone) == 0
    assert found(cluster[0].attach(namespace="cleared"), keys_of("cleared", PAGES // 2)) == 0
    assert found(cluster[1].attach(timeout_s=10.0), keys[32:]) == PAGES - 32


def flip_bits(folder: Path, seed: int, flips: int) -> None:
    chance = random.Random(seed)
    for segment in folder.glob("segment-*"):
        size = segment.stat().st_size
        with segment.open("r+b", buffering=0) as file:
            for _ in range(flips):
                at = chance.randrange(size)
                file.seek(at)
                byte = file.read(1)[0]
                file.seek(at)
                file.write(bytes([byte ^ 1 << chance.randrange(8)]))


def test_flipped_bits_under_a_live_cluster_are_misses_never_wrong_bytes(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    cluster = make_cluster(2, pool_size=POOL, rpc_timeout_ms=5000, each=disk_options(tmp_path, "a"))
    keys = keys_of("flipped", PAGES)
    fill(cluster[0], cluster[0].attach(), keys)
    flip_bits(tmp_path / "a.disk", 1, 100)
    got = found(cluster[1].attach(timeout_s=10.0), keys)
    assert 0 < got < PAGES
    assert disk_of(cluster[0])["reads_corrupt"] > 0
    assert "damaged" in cluster[0].sentences()
    cluster[0].kill()
    flip_bits(tmp_path / "a.disk", 2, 100)
    cluster.start_again(cluster[0])
    assert found(cluster[1].attach(timeout_s=10.0), keys) <= got


@pytest.mark.parametrize("rounds", [40, pytest.param(1000, marks=pytest.mark.slow)])
def test_no_wrong_byte_while_evictions_race_promotes(
    make_cluster: MakeCluster, tmp_path: Path, rounds: int
) -> None:
    """Two nodes set and get the same pages at random. The pages fill four pools."""
    cluster = make_cluster(
        2, pool_size="4MiB", rpc_timeout_ms=5000, each=disk_options(tmp_path, "ab")
    )
    keys = keys_of("raced", 240)

    def work(daemon: Daemon, seed: int) -> Background:
        chance = random.Random(seed)
        pages = daemon.attach(timeout_s=5.0)

        def some() -> None:
            chosen = chance.sample(keys, 8)
            pages.get(chosen) if chance.random() < 0.7 else pages.set(chosen)

        return Background(some)

    with work(cluster[0], 1) as one, work(cluster[1], 2) as two, work(cluster[1], 3) as three:
        for each in (one, two, three):
            each.wait_rounds(rounds)
    assert sum(operations(d)["get_disk"] + operations(d)["get_peer_disk"] for d in cluster.daemons)


def test_a_drained_node_finds_its_disk_again_when_it_is_back(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    cluster = make_cluster(2, pool_size=POOL, rpc_timeout_ms=5000, each=disk_options(tmp_path, "a"))
    keys = keys_of("drained", PAGES)
    fill(cluster[0], cluster[0].attach(), keys)
    cluster[0].drain(stay=False, seconds_max=30)
    assert found(cluster[1].attach(), keys[-32:]) > 0, "the warmest pages went to the peer"
    cluster[0].stop()
    cluster.start_again(cluster[0])
    assert found(cluster[1].attach(timeout_s=10.0), keys) == PAGES


def test_the_tier_keeps_to_its_size_and_loses_the_oldest(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    cluster = make_cluster(
        1, pool_size="4MiB", rpc_timeout_ms=5000, each=disk_options(tmp_path, "a")
    )
    assert cluster[0].stop() == 0
    cluster[0].options["disk-size"] = "32MiB"
    cluster[0].options["disk-path"] = str(tmp_path / "small.disk")
    cluster.start_again(cluster[0])
    pages = cluster[0].attach(timeout_s=10.0)
    keys = keys_of("too many", 800)  # 50 MiB
    fill(cluster[0], pages, keys)
    disk = disk_of(cluster[0])
    assert disk["pages_evicted"] > 0
    assert disk["used_bytes"] <= 32 << 20
    got = found(pages, keys)
    assert 100 < got < 800
    assert found(pages, keys[-64:]) == 64


def refused_start(daemon: Daemon) -> str:
    daemon.start()
    with pytest.raises(ClusterError, match="exited"):
        daemon.wait_ready(20)
    return daemon.log_tail()


def test_start_fails_with_a_clear_error_for_an_unusable_disk_path(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    cluster: Cluster = make_cluster(
        2, pool_size=POOL, rpc_timeout_ms=5000, each=disk_options(tmp_path, "aa"), start=False
    )
    one, other = cluster.daemons
    one.start()
    one.wait_ready()
    assert "a.disk" in refused_start(other)  # locked by the running daemon
    one.kill()
    assert "a.disk" in refused_start(other)  # belongs to another node
    other.options["disk-path"] = str(tmp_path / "nowhere" / "disk")
    assert "nowhere" in refused_start(other)


def test_cleared_namespace_is_written_to_disk_after_its_epoch_is_lost(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    """Without a `state_dir`, only the disk remembers the clear."""
    cluster = make_cluster(1, pool_size=POOL, each=disk_options(tmp_path, "a", state_dir=""))
    node = cluster[0]
    with node.attach(timeout_s=10.0) as worker:
        fill(node, worker, keys_of("before", 32))
        assert worker.client.clear()
        eventually(lambda: disk_of(node)["pages"] == 0, what="what was cleared has left the disk")
    node.stop()
    cluster.start_again(node)
    with node.attach(timeout_s=10.0) as worker:
        keys = keys_of("after", 32)
        fill(node, worker, keys)
        assert disk_of(node)["skipped_old"] == 0
        assert disk_of(node)["pages"] == len(keys)
        assert found(worker, keys_of("before", 32)) == 0


def test_health_reports_pages_too_large_for_the_disk_with_the_limit(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    cluster = make_cluster(1, pool_size="64MiB", each=disk_options(tmp_path, "a"))
    with cluster[0].attach(page_bytes=5 << 20, room_pages=4, timeout_s=10.0) as worker:
        assert all(worker.set(keys_of("large", 3)))
    eventually(lambda: disk_of(cluster[0])["skipped_large"] == 3)
    assert disk_of(cluster[0])["page_bytes_max"] == 4 << 20
    said = [entry["sentence"] for entry in cluster[0].status()["health"]]
    assert any("3 pages were too large" in sentence and "4194304" in sentence for sentence in said)
