"""Pages go to the object store before they leave memory and disk, also with the process."""

import time
from pathlib import Path

from harness.clock import seconds
from harness.cold import cold_of, options, wait_known, wipe
from harness.disks import disk_of, disk_options, found, wait_written
from harness.fixtures import MakeCluster
from harness.pages import keys_of
from harness.s3 import BUCKET, S3
from harness.waiting import eventually

from peercached.admin.client import AdminClient

SEGMENT = 60  # of a segment of 4 MiB, about


def test_pages_that_the_disk_evicts_are_written_if_they_were_used(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    """They are used while they are in the pool, and not on the disk."""
    store = f"file://{tmp_path}/store"
    disks = disk_options(tmp_path, "a", disk_size="32MiB")
    cluster = make_cluster(1, **options(store) | {"pool_size": "4MiB"}, each=disks)
    worker = cluster[0].attach()
    keys = keys_of("used", 10 * SEGMENT)
    unused = keys_of("unused", len(keys) // 4)

    def are_written() -> bool:
        """Whether the store has all used pages that the disk evicts next: four of five."""
        evicted = disk_of(cluster[0])["pages_evicted"]
        return bool(cold_of(cluster[0])["written_pages"] >= (evicted + SEGMENT) * 4 // 5 - 10)

    for at in range(0, len(keys), 8):
        for key in keys[at : at + 8]:
            assert all(worker.set([key])) and found(worker, [key])
        assert all(worker.set(unused[at // 4 : at // 4 + 2]))
        wait_written(cluster[0])
        if at == 208:
            assert cluster[0].status()["pool"]["evictions"] >= 20
            assert cold_of(cluster[0])["written_pages"] == 0, "they are still on the disk"
        if disk_of(cluster[0])["used_bytes"] > 21 << 20:
            eventually(are_written, 60)
    assert disk_of(cluster[0])["pages_carried"] == 0
    gone = disk_of(cluster[0])["pages_evicted"] * 4 // 5 - 10
    assert gone > 3 * SEGMENT
    written = cold_of(cluster[0])["written_pages"]
    assert written < gone + 2 * SEGMENT, "pages that stay are not written"
    wipe(cluster)
    new = make_cluster(1, **options(store))
    wait_known(new[0], written)
    reader = new[0].attach()
    assert found(reader, keys[:gone]) == gone
    assert found(reader, unused) == 0


def test_a_drain_and_a_stop_write_what_is_lost_with_the_process(
    make_cluster: MakeCluster, s3: S3
) -> None:
    store = f"s3://{BUCKET}/prefix"
    cluster = make_cluster(1, **options(store), stop_drain_s=3)
    worker = cluster[0].attach()
    used, unused, late, last = (keys_of(name, 48) for name in ("used", "unused", "late", "last"))
    for at in range(0, 48, 16):
        assert all(worker.set(used[at : at + 16])) and all(worker.set(unused[at : at + 16]))
    assert found(worker, used) == 48
    drained = cluster[0].drain(stay=True)
    assert drained["stored_pages"] == 48
    assert drained["outcome"].endswith("; 48 pages were written to the object store")
    with AdminClient(str(cluster[0].admin_path)) as admin:
        admin.undrain()
    for at in range(0, 48, 16):
        assert all(worker.set(late[at : at + 16]))
    assert found(worker, late) == 48
    s3.freeze()
    began = time.monotonic()
    assert cluster[0].stop(60) == 0
    assert time.monotonic() - began < seconds(3 + 15), "a stop keeps its budget"
    s3.thaw()

    new = make_cluster(1, **options(store), stop_drain_s=20)
    wait_known(new[0], 48)
    reader = new[0].attach()
    assert found(reader, used) == 48
    assert found(reader, unused) == found(reader, late) == 0, "what is half-written is nowhere"
    for at in range(0, 48, 16):
        assert all(reader.set(last[at : at + 16]))
    assert found(reader, last) == 48
    assert new[0].stop(60) == 0
    third = make_cluster(1, **options(store))
    wait_known(third[0], 96)
    assert cold_of(third[0])["pages"] == 96, "those that came from the store are not written again"
    assert found(third[0].attach(), used + last) == 96


def test_used_pages_are_written_by_whoever_ends_last_also_if_it_may_have_missed_removals(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    store = f"file://{tmp_path}/store"
    cluster = make_cluster(2, **options(store), stop_drain_s=10)
    first, second = cluster.daemons
    moved, own = (keys_of(name, 48) for name in ("moved", "own"))

    def use(keys: list[bytes]) -> None:
        worker = first.attach(room_pages=48)
        assert all(worker.set(keys)) and found(worker, keys) == 48

    use(moved)
    assert first.stop(60) == 0
    assert second.status()["handover"]["adopted"] == 48
    assert second.stop(60) == 0, "nobody has read them there"
    first.start()
    first.wait_ready()
    assert first.status()["removals"]["owes"], "the other one ended later"
    use(own)
    assert first.stop(60) == 0
    new = make_cluster(1, **options(store))
    wait_known(new[0], 96)
    assert found(new[0].attach(), moved + own) == 96


def test_a_peer_that_is_silent_leaves_time_for_the_store(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    slow = {"stop_drain_s": 4, "member_ttl_s": 30}
    cluster = make_cluster(2, **options(f"file://{tmp_path}/store") | slow)
    worker = cluster[0].attach()
    used = keys_of("used", 48)
    assert all(worker.set(used)) and found(worker, used) == 48
    cluster[1].freeze()
    assert cluster[0].stop(60) == 0
    cluster[1].thaw()
    wait_known(cluster[1], 48)
