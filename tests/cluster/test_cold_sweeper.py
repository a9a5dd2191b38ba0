"""One daemon sweeps the object store. Its compactions bring no removed page back."""

import pytest
from harness.cluster import Cluster, Daemon
from harness.cold import PAGES, STORED, cold_of, fill_and_read, options, wait_known, wipe
from harness.disks import found
from harness.fixtures import MakeCluster
from harness.pages import keys_of
from harness.s3 import BUCKET, S3
from harness.waiting import eventually

from peercache_client import Status

STEP = 10
SIZE = 16 << 20


def sweeper_of(cluster: Cluster, but: Daemon | None = None) -> Daemon:
    """Waits until another one than `but` has the lease."""
    found: list[Daemon] = []

    def has_one() -> bool:
        found[:] = [d for d in cluster.daemons if d is not but and cold_of(d)["is_sweeper"]]
        return bool(found)

    eventually(has_one, 90, "a daemon has the lease")
    return found[0]


@pytest.mark.slow
def test_compactions_keep_live_pages_and_no_removed_one_and_the_store_stays_within_its_size(
    make_cluster: MakeCluster, s3: S3
) -> None:
    store = f"s3://{BUCKET}/prefix"
    more = {"cold_prices": "put 0.005, get 0.0004, gb_month 0.023"}
    cluster = make_cluster(2, **options(store, **more))
    keys = keys_of("kept", PAGES)
    writer = cluster[0].attach()
    fill_and_read(cluster[0], writer, keys)
    wait_known(cluster[1], STORED)
    first = sweeper_of(cluster)
    other = next(daemon for daemon in cluster.daemons if daemon is not first)
    reader = other.attach()

    # Removals while it compacts.
    gone: list[bytes] = []
    kept = keys[STORED // 2 : STORED]
    at = 0
    while at < STORED // 2 or not cold_of(first)["compactions"]:
        if at < STORED // 2:
            some = keys[at : at + STEP]
            at += STEP
            assert set(reader.client.remove(some)) <= {Status.ok, Status.absent}
            gone += some
        assert found(writer, gone) == found(reader, gone) == 0
        assert cold_of(first)["is_sweeper"], "it renews its lease in time"
        assert reader.client.batch_exists(gone[-STEP:]) == 0
        assert found(reader, kept) == len(kept)

    def has_swept() -> bool:
        counted = cold_of(first)
        return bool(counted["deleted_records"] > 1 and counted["deleted_objects"])

    eventually(has_swept, 90, lambda: f"{cold_of(first)}")
    counted = cold_of(first)
    assert counted["generation"] >= 2, counted
    assert list(counted["monthly_cost"]) == ["bytes"] and counted["monthly_cost"]["bytes"] > 0
    assert found(reader, gone) == 0 and found(reader, kept) == len(kept)

    # A frozen sweeper loses the lease, and does not take it back.
    first.freeze()
    assert sweeper_of(cluster, first) is other
    first.thaw()
    eventually(lambda: cold_of(first)["sweeper"] == cold_of(other)["sweeper"] != "", 90)
    assert not cold_of(first)["is_sweeper"]

    # A new cluster finds what is left.
    wipe(cluster)
    new = make_cluster(1, **options(store))
    wait_known(new[0], len(kept))
    reader = new[0].attach()
    assert found(reader, gone) == 0 and reader.client.batch_exists(gone) == 0
    assert found(reader, kept) == len(kept)

    # Another one takes over the lease, and keeps the store within its size.
    wipe(new)
    small = make_cluster(1, **options(store, cold_size=SIZE))
    # Pages that are set before it knows the generation are void in the store.
    eventually(lambda: cold_of(small[0])["generation"] >= 2, 30)
    fill_and_read(small[0], small[0].attach(), keys_of("more", PAGES))
    assert sweeper_of(small) is small[0]

    def is_within_size() -> bool:
        counted = cold_of(small[0])
        return bool(counted["deleted_objects"] and counted["stored_bytes"] <= SIZE)

    eventually(is_within_size, 60, lambda: f"{cold_of(small[0])}")
    assert found(small[0].attach(), gone) == 0
