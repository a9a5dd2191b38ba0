"""A store that is not the one that the cluster knows is not used, and no removal goes there."""

import json
import shutil
from pathlib import Path

import pytest
from harness.cluster import Daemon
from harness.cold import PAGES, STORED, cold_of, fill_and_read, options, wait_known
from harness.disks import found
from harness.fixtures import MakeCluster
from harness.pages import Pages, keys_of
from harness.s3 import BUCKET, S3, s3_server
from harness.secret_file import secret_file
from harness.waiting import eventually
from obstore.store import from_url

from peercache_client import Status

REFUSED = "cold_other_store"


def told(daemon: Daemon, code: str = REFUSED) -> list[str]:
    health = daemon.status()["health"]
    return [one["sentence"] + " " + one["remedy"] for one in health if one["code"] == code]


def wait_told(daemon: Daemon, is_told: bool = True, code: str = REFUSED) -> None:
    eventually(lambda: bool(told(daemon, code)) is is_told, 60, lambda: f"{cold_of(daemon)}")


def started_alone(daemon: Daemon, keys: list[bytes]) -> Pages:
    """Its worker has set the keys, and STORED of their pages are in the store."""
    daemon.start()
    daemon.wait_ready()
    worker = daemon.attach()
    fill_and_read(daemon, worker, keys)
    return worker


def test_folder_that_is_not_mounted_is_no_empty_store(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    folder, away = tmp_path / "store", tmp_path / "away"
    cluster = make_cluster(2, **options(f"file://{folder}"))
    keys = keys_of("kept", PAGES)
    writer = cluster[0].attach()
    fill_and_read(cluster[0], writer, keys)
    wait_known(cluster[1], STORED)
    reader = cluster[1].attach()
    gone, kept = keys[:8], keys[8:40]
    assert set(reader.client.remove(gone[:4])) <= {Status.ok, Status.absent}

    folder.rename(away)
    folder.mkdir()
    for daemon in cluster.daemons:
        wait_told(daemon)
    assert reader.client.batch_exists(kept) == 0 == found(reader, kept) == found(writer, kept)
    assert set(reader.client.remove(gone[4:])) == {Status.removing}
    assert not cluster[1].attach(namespace="other").client.clear(), "the store has not heard of it"
    [sentence] = told(cluster[1])
    markers = sorted((away / "voids").glob("store-*"))  # two, if both nodes began it
    assert any(f"voids/{marker.name}" in sentence for marker in markers)
    assert "Mount" in sentence
    # Neither does a restart take it for the store.
    assert cluster[1].stop() == 0
    cluster.start_again(cluster[1])
    wait_told(cluster[1])
    assert not list(folder.glob("voids/*")), "no removal, and no marker"

    shutil.rmtree(folder)
    away.rename(folder)
    for daemon in cluster.daemons:
        wait_told(daemon, False)
        wait_known(daemon, STORED - 8)
    reader = cluster[1].attach()
    assert set(reader.client.remove(gone)) <= {Status.ok, Status.absent}
    for worker in (writer, reader):
        assert found(worker, gone) == 0 and found(worker, kept) == len(kept)

    # A new store: all accept it at once, by one object there.
    folder.rename(away)
    (folder / "voids").mkdir(parents=True)
    wait_told(cluster[0])
    (folder / "voids" / markers[0].name).touch()
    for daemon in cluster.daemons:
        wait_told(daemon, False)

    # A cluster with another secret finds none of these pages.
    secret = secret_file(tmp_path, b"another secret, long enough")
    theirs = make_cluster(1, cluster_secret_file=secret, **options(f"file://{folder}"))[0]
    wait_told(theirs, code="cold_other_secret")
    [sentence] = told(theirs, "cold_other_secret")
    assert f"delete voids/{markers[0].name}" in sentence and not told(theirs)
    assert not told(cluster[0], "cold_other_secret")


def test_member_with_a_copy_of_the_store_confirms_no_removal(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    """It has the marker, too: a backup that was mounted there."""
    folder, copy = tmp_path / "store", tmp_path / "copy"
    cluster = make_cluster(2, start=False, **options(f"file://{folder}"))
    first, second = cluster.daemons
    keys = keys_of("kept", PAGES)
    writer = started_alone(first, keys)
    wait_known(first, STORED)
    shutil.copytree(folder, copy)
    mount = f'mount --make-rprivate / && mount --bind {copy} {folder} && exec "$@"'
    second.launcher = ["unshare", "-m", "sh", "-c", mount, "sh"]
    cluster.start_again(second)
    wait_known(second, STORED)
    assert set(writer.client.remove(keys[:8])) == {Status.removing}
    [sentence] = told(first, "removal_incomplete")
    assert f"{second.node_id}: it still finds the pages in its object store" in sentence


def test_node_with_another_store_than_the_cluster_neither_uses_it_nor_confirms_removals(
    make_cluster: MakeCluster, s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its endpoint is another one: so it is with a folder that is not mounted there."""
    store = f"s3://{BUCKET}/prefix"
    (tmp_path / "other").mkdir()
    with s3_server(tmp_path / "other") as other:
        cluster = make_cluster(2, start=False, **options(store))
        first, second = cluster.daemons
        keys = keys_of("kept", PAGES)
        writer = started_alone(first, keys)
        monkeypatch.setenv("AWS_ENDPOINT_URL", other.endpoint)
        cluster.start_again(second)

        # Fresh, it learns from the other one which store is right.
        wait_told(second)
        assert cold_of(second)["marker"] == cold_of(first)["marker"] != ""
        assert not told(first) and set(writer.client.remove(keys[:4])) <= {
            Status.ok,
            Status.absent,
        }
        assert second.attach().client.remove(keys[4:8])[0] is Status.removing
        assert second.stop() == 0

        # With a store that it knows from before, both say so, and no removal is complete.
        younger = "9" * 13 + "-" + "0" * 16
        state = second.state_dir / f"store-{second.node_id}.json"
        fields = json.loads(state.read_text())
        state.write_text(json.dumps(fields | {"marker": younger}))
        marker = f"voids/store-{younger}-{fields['cluster']}"
        from_url(store, client_options={"allow_http": True}).put(marker, b"")
        cluster.start_again(second)
        wait_told(second)
        wait_told(first)
        assert second.node_id in told(first)[0]
        assert set(writer.client.remove(keys[8:12])) == {Status.removing}
        assert not first.attach(namespace="other").client.clear()
        assert second.stop() == 0

        # It finds the right one.
        monkeypatch.setenv("AWS_ENDPOINT_URL", s3.endpoint)
        cluster.start_again(second)
        wait_known(second, STORED - 12)
        wait_told(first, False)
        wait_told(second, False)
        assert set(writer.client.remove(keys[8:12])) <= {Status.ok, Status.absent}


def test_mistyped_prefix_is_no_empty_store(make_cluster: MakeCluster, tmp_path: Path) -> None:
    cluster = make_cluster(1, **options(f"file://{tmp_path}/store"))
    daemon = cluster[0]
    keys = keys_of("kept", PAGES)
    fill_and_read(daemon, daemon.attach(), keys)
    assert daemon.stop() == 0
    daemon.options["cold-store"] = f"file://{tmp_path}/typo"
    cluster.start_again(daemon)
    wait_told(daemon)
    assert set(daemon.attach().client.remove(keys[:4])) == {Status.removing}
    assert not list(tmp_path.glob("typo/voids/*")), "no removal, and no marker"
