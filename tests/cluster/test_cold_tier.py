"""Pages in an object store outlive the cluster, and no removed page comes back from there."""

import base64
import json
import mmap
import random
import tarfile
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
from harness.clock import seconds
from harness.cluster import Daemon
from harness.cold import PAGES, STORED, cold_of, fill_and_read, options, wait_known, wipe
from harness.content import Content
from harness.ctl import ctl
from harness.disks import found
from harness.fixtures import MakeCluster
from harness.pages import keys_of
from harness.s3 import BUCKET, S3
from harness.secret_file import secret_file
from harness.store_proxy import StoreProxy
from harness.waiting import eventually
from harness.warm_pools import PoolFiles
from obstore.store import from_url

from peercache_client import Status
from peercached.admin.client import AdminClient
from peercached.cold.format import Record, log_path, name_of, of_log_path, parse_index
from peercached.cold.sealing import Sealing


@pytest.fixture(params=["file", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "file":
        return f"file://{tmp_path}/store"
    request.getfixturevalue("s3")
    return f"s3://{BUCKET}/some/prefix"


def test_a_new_cluster_finds_the_pages_of_one_that_was_wiped(
    make_cluster: MakeCluster, store: str
) -> None:
    cluster = make_cluster(2, **options(store))
    keys = keys_of("kept", PAGES)
    fill_and_read(cluster[0], cluster[0].attach(), keys)
    wipe(cluster)
    new = make_cluster(2, **options(store))
    wait_known(new[1], STORED)
    reader = new[1].attach()
    known = cold_of(new[1])["pages"]
    assert reader.client.batch_exists(keys[:STORED]) == STORED
    assert found(reader, keys) == known >= STORED
    assert cold_of(new[1])["read_pages"] == known
    assert found(new[0].attach(), keys[:32]) == 32, "a peer, or the store, has them"
    assert [daemon.stop() for daemon in new.daemons] == [0, 0]


def test_pages_that_nobody_read_are_not_written(make_cluster: MakeCluster, tmp_path: Path) -> None:
    store = f"file://{tmp_path}/store"
    cluster = make_cluster(1, **options(store))
    worker = cluster[0].attach()
    twice, once = keys_of("twice", PAGES), keys_of("once", PAGES)
    fill_and_read(cluster[0], worker, twice)
    for at in range(0, PAGES, 16):
        assert all(worker.set(once[at : at + 16]))
    wipe(cluster)
    new = make_cluster(1, **options(store))
    wait_known(new[0], STORED)
    reader = new[0].attach()
    assert found(reader, once) == 0 and found(reader, twice) >= STORED


def test_removed_page_is_absent_in_its_cluster_and_in_a_new_one(
    make_cluster: MakeCluster, store: str
) -> None:
    cluster = make_cluster(2, **options(store))
    keys = keys_of("kept", PAGES)
    writer = cluster[0].attach()
    fill_and_read(cluster[0], writer, keys)
    wait_known(cluster[1], STORED)
    other = cluster[1].attach()
    gone, kept = keys[:32], keys[32:64]
    assert other.client.batch_exists(gone) == 32
    statuses = other.client.remove(gone)
    assert set(statuses) <= {Status.ok, Status.absent}
    for worker in (writer, other):
        assert found(worker, gone) == 0 and worker.client.batch_exists(gone) == 0
        assert found(worker, kept) == 32
    # It may be set again, and is not written again.
    assert all(writer.set(gone[:1])) and found(other, gone[:1]) == 1
    wipe(cluster)
    new = make_cluster(2, **options(store))
    for daemon in new.daemons:
        wait_known(daemon, STORED - 32)
        worker = daemon.attach()
        assert found(worker, gone) == 0 and worker.client.batch_exists(gone) == 0
        assert found(worker, kept) == 32


def test_cleared_pages_are_absent_in_a_new_cluster_and_later_ones_are_found(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    store = f"file://{tmp_path}/store"
    cluster = make_cluster(2, **options(store))
    keys = keys_of("old", PAGES)
    writer = cluster[0].attach()
    fill_and_read(cluster[0], writer, keys)
    assert writer.client.clear()
    assert found(writer, keys) == 0
    later = keys_of("new", PAGES)
    fill_and_read(cluster[0], writer, later)
    wipe(cluster)
    new = make_cluster(2, **options(store))
    wait_known(new[1], STORED)
    reader = new[1].attach()
    assert found(reader, keys) == 0 and reader.client.batch_exists(keys) == 0
    assert found(reader, later) >= STORED


def test_another_cluster_reads_no_page_whose_removal_was_answered(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    """The other cluster has just looked at the removals, before each of them."""
    store = f"file://{tmp_path}/store"
    ours = make_cluster(1, **options(store))
    keys = keys_of("kept", PAGES)
    writer = ours[0].attach()
    fill_and_read(ours[0], writer, keys)
    theirs = make_cluster(1, **options(store))
    wait_known(theirs[0], STORED)
    reader = theirs[0].attach()
    for at in reversed(range(0, 8 * 16, 16)):  # its neighbours behind come along
        assert found(reader, keys[at + 8 : at + 16]) == 8
        gone = keys[at : at + 8]
        assert set(writer.client.remove(gone)) <= {Status.ok, Status.absent}
        assert reader.client.batch_exists(gone) == 0
        assert found(reader, gone) == 0
    assert cold_of(theirs[0])["pages"] > 0


def test_reader_that_is_late_serves_no_removed_page(
    make_cluster: MakeCluster, s3: S3, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another cluster. Its listings of the removals come half a second after they were taken. Every
    other time it stops while a read of the pages is under way, until their removal is answered."""
    store, rng = f"s3://{BUCKET}/prefix", random.Random(1)
    ours = make_cluster(1, **options(store))
    keys = keys_of("kept", PAGES)
    writer = ours[0].attach()
    fill_and_read(ours[0], writer, keys)
    with StoreProxy(s3.endpoint) as proxy, ThreadPoolExecutor(1) as thread:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.endpoint)
        theirs = make_cluster(1, **options(store))
        wait_known(theirs[0], STORED)
        proxy.plan(late_s={"prefix%2Fvoids": 0.5, "/prefix/pages/": 2.0})
        reader = theirs[0].attach(slack_s=60)
        came = 0
        # From the end, because the pages behind those that are read come along.
        for at in range(7 * 16, -1, -16):
            came += found(reader, keys[at + 8 : at + 16])
            gone = keys[at : at + 8]
            reads = None
            if at % 32:
                reads = thread.submit(found, reader, gone)
                time.sleep(rng.uniform(0, 0.1))
                theirs[0].freeze()
            assert set(writer.client.remove(gone)) <= {Status.ok, Status.absent}
            theirs[0].thaw()
            assert reads is None or reads.result() == 0
            assert found(reader, gone) == 0 and reader.client.batch_exists(gone) == 0
        assert came, "it does read pages of the store"


def test_store_that_fails_at_random_gives_no_wrong_page(
    make_cluster: MakeCluster, s3: S3, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It cuts connections, throttles, truncates and flips bits while pages are written and read."""
    faults = {"cut": 0.03, "throttle": 0.03, "truncate": 0.1, "flip": 0.1}
    store = f"s3://{BUCKET}/prefix"
    with StoreProxy(s3.endpoint) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.endpoint)
        cluster = make_cluster(1, **options(store))
        proxy.plan(**faults)
        keys = keys_of("kept", PAGES)
        fill_and_read(cluster[0], cluster[0].attach(), keys)
        wipe(cluster)
        new = make_cluster(1, **options(store))
        wait_known(new[0], 1)
        reader = new[0].attach()

        def all_faults() -> bool:
            found(reader, keys)  # compares all bytes
            return all(proxy.plan().get(fault) for fault in faults)

        eventually(all_faults, 60, lambda: f"{proxy.plan()} {cold_of(new[0])}")


def test_store_that_hangs_costs_misses_only_and_status_says_so(
    make_cluster: MakeCluster, s3: S3
) -> None:
    store = f"s3://{BUCKET}/prefix"
    cluster = make_cluster(2, **options(store))
    keys = keys_of("kept", PAGES)
    worker = cluster[0].attach()
    fill_and_read(cluster[0], worker, keys)
    wait_known(cluster[1], STORED)
    reader = cluster[1].attach(timeout_s=0.5)
    assert found(reader, keys[16:24]) == 8  # with neighbours behind them
    s3.freeze()
    hasty = cluster[1].attach(timeout_s=0.5)
    began = time.monotonic()
    assert found(hasty, keys[:16]) == 0
    assert time.monotonic() - began < seconds(2), "the deadline of a get holds"
    for number in range(20):  # others go on as usual
        page = keys_of(f"others {number}", 16)
        assert all(hasty.set(page)) and found(hasty, page) == 16
    assert set(hasty.client.remove(keys[:1])) == {Status.removing}
    assert "the object store: it has not answered yet" in cluster[1].sentences()
    eventually(lambda: "cold_store_fails" in cluster[1].codes(), 60)
    assert "hush-hush" not in cluster[1].sentences() + cluster[1].log_tail()
    cleared = ctl(cluster[1], "clear", "-n", "test", "--yes")
    assert "but the object store (" in cleared.output, "it waits longer than the daemon does"
    s3.thaw()
    eventually(lambda: "cold_store_fails" not in cluster[1].codes(), 60)
    s3.freeze()
    assert hasty.client.remove(keys[1:2]) == [Status.removing]  # its record hangs
    began = time.monotonic()
    assert cluster[1].stop(60) == 0
    assert time.monotonic() - began < seconds(4), "no request keeps the process"


def test_vanished_cut_and_damaged_objects_are_misses(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    folder = tmp_path / "store"
    cluster = make_cluster(1, **options(f"file://{folder}"))
    keys = keys_of("kept", PAGES)
    fill_and_read(cluster[0], cluster[0].attach(), keys)
    wipe(cluster)
    new = make_cluster(1, **options(f"file://{folder}"))
    wait_known(new[0], STORED)
    objects = sorted((folder / "pages").glob("*/*/*"))
    assert len(objects) >= 4
    objects[0].unlink()
    objects[1].write_bytes(b"")
    objects[3].write_bytes(objects[3].read_bytes()[:100_000])
    damaged = bytearray(objects[2].read_bytes())
    for at in range(1000, len(damaged), 65_536):
        damaged[at] ^= 1
    objects[2].write_bytes(damaged)
    reader = new[0].attach()
    known = cold_of(new[0])["pages"]
    got = found(reader, keys)  # compares all bytes
    assert 0 < got < known
    counted = cold_of(new[0])
    assert counted["vanished_pages"] and counted["corrupt_pages"], counted
    assert not counted["failure"], "the others are used as before"
    assert found(reader, keys) == got


def damage(pool: Path, key: bytes) -> None:
    """Flips a bit of that page in the pool's file, as bad memory does."""
    with pool.open("r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
        at = memory.find(Content().page(key, 65_536))
        assert at > 0
        memory[at + 1000] ^= 1


def objects_in(store: str) -> dict[str, bytes]:
    bucket = from_url(store, client_options={"allow_http": True})
    paths = [meta["path"] for part in bucket.list() for meta in part]
    return {path: bytes(bucket.get(path).bytes()) for path in paths}


def other_keys(daemon: Daemon) -> int:
    return int(cold_of(daemon)["other_key_objects"])


def test_sealed_pages_are_for_clusters_with_the_key_and_the_store_shows_nothing_of_them(
    make_cluster: MakeCluster, s3: S3, tmp_path: Path, pool_files: PoolFiles
) -> None:
    store = f"s3://{BUCKET}/sealed"
    master = b"the key of the cold tier, beyond guessing"
    for folder in ("ours", "theirs"):
        (tmp_path / folder).mkdir()
    ours = secret_file(tmp_path / "ours", master)
    theirs = secret_file(tmp_path / "theirs", master[::-1])

    pool = pool_files[0]
    first = make_cluster(1, cold_key_file=ours, pool_file=str(pool), **options(store))
    keys = keys_of("kept", PAGES)
    writer = first[0].attach()
    fill_and_read(first[0], writer, keys[:100])
    damage(pool, keys[20])
    fill_and_read(first[0], writer, keys[100:])
    wipe(first)

    # Nothing in the store tells of pages, but with the key their digests come out.
    sealed = objects_in(store)
    seal = Sealing(master)
    digests, namespaces = set(), set()
    for path, packed in sealed.items():
        if (of := of_log_path("manifests", path)) is not None:
            index = parse_index(packed, of[1], seal)
            digests |= set(index.digests)
            namespaces.add((index.namespace_id, index.epoch))
    assert len(digests) >= STORED - 1
    pages = Content()
    page_pieces = {
        bytes(pages.page(key, 65_536)[at : at + 16]) for key in keys for at in (0, 40_000)
    }

    def shown(objects: dict[str, bytes], pieces: set[bytes]) -> int:
        everything = b"|".join(objects.values())
        return sum(piece in everything for piece in pieces)

    assert shown(sealed, page_pieces) == 0 and shown(sealed, digests) == 0

    # The three at once: with the key, with another key, without one.
    again = make_cluster(1, cold_key_file=ours, **options(store))[0]
    strangers = [
        make_cluster(1, cold_key_file=theirs, **options(store))[0],
        make_cluster(1, **options(store))[0],
    ]
    wait_known(again, STORED - 1)
    reader = again.attach()
    assert found(reader, keys[:20]) == 20 and found(reader, keys[20:21]) == 0
    known = cold_of(again)["pages"]
    assert 20 + found(reader, keys[21:]) == known == len(digests)
    assert cold_of(again)["corrupt_pages"] == 0
    for stranger in strangers:
        eventually(partial(other_keys, stranger), 30, "manifests are read")
        assert found(stranger.attach(), keys[:STORED]) == 0 == cold_of(stranger)["pages"]
        told = {one["code"]: one["remedy"] for one in stranger.status()["health"]}
        assert "the same cold_key_file" in told["cold_other_key"]

    # A node without the key writes its pages in the clear, and one with the key does not read them.
    plain_keys = keys_of("plain", PAGES)
    fill_and_read(strangers[1], strangers[1].attach(), plain_keys)
    assert shown(objects_in(store), {bytes(pages.page(plain_keys[5], 65_536)[:16])}) == 1
    eventually(partial(other_keys, again), 30, "the reader lists them")
    assert found(reader, plain_keys) == 0

    # Keys are nowhere to be seen.
    bundle = tmp_path / "bundle.tar.gz"
    done = ctl(again, "support-bundle", "-o", str(bundle), "--log", str(again.log_path))
    assert done.exit_code == 0, done.output
    with tarfile.open(bundle) as archive:
        said = [archive.extractfile(part).read() for part in archive]  # type: ignore[union-attr]
    said += [json.dumps(again.status()).encode(), again.log_path.read_bytes()]
    secrets = {master, seal.id} | {
        seal.of_pages(namespace_id, epoch)[:32] for namespace_id, epoch in namespaces
    }
    for secret in secrets:
        for shape in (
            secret,
            secret.hex().encode(),
            base64.b64encode(secret),
            repr(secret).encode(),
        ):
            assert not any(shape in text for text in said)
            assert secret == seal.id or shown(sealed, {shape}) == 0


def test_clear_outbids_that_of_another_cluster_whose_clock_is_ahead(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    """Or it would take over the other one's epoch, and find the pages of before."""
    cluster = make_cluster(1, **options(f"file://{tmp_path}/store"))
    worker = cluster[0].attach()
    [key] = keys_of("ahead", 1)
    assert all(worker.set([key]))
    with AdminClient(str(cluster[0].admin_path)) as admin:
        before = admin.locate("test", key)
        theirs = time.time_ns() // 1000 + 3600 * 10**6
        packed = Record(bytes.fromhex(before.namespace_id), theirs).pack()
        record = tmp_path / "store" / log_path("voids", time.time_ns() // 10**6, name_of(packed))
        record.parent.mkdir(parents=True, exist_ok=True)
        record.write_bytes(packed)
        assert worker.client.clear()
        assert admin.locate("test", key).epoch > theirs


def test_daemon_whose_store_cannot_be_used_does_not_start(
    make_cluster: MakeCluster,
) -> None:
    cluster = make_cluster(1, start=False, **options("file:///proc/nowhere"))
    cluster[0].start()
    assert cluster[0].wait_exit(30) != 0
    assert "cold_store: file:///proc/nowhere cannot be used" in cluster[0].log_tail()
