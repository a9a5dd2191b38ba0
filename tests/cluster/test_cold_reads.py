"""How pages come back from the object store: with their neighbours, by forecast, into a GPU."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.cluster import Cluster
from harness.cold import cold_of, options, wait_known
from harness.disks import found
from harness.fixtures import MakeCluster
from harness.gpu_stand_in import stand_in_pages
from harness.pages import Pages, keys_of
from harness.s3 import BUCKET, S3
from harness.store_proxy import StoreProxy
from harness.waiting import eventually

from peercache_client import Client
from peercache_client.worth import Worth

MIB = 1 << 20
STORES = {"stop_drain_s": 20}  # a stop writes the pages of the pool to the store


@pytest.fixture
def slow_s3(s3: S3, monkeypatch: pytest.MonkeyPatch) -> Iterator[StoreProxy]:
    with StoreProxy(s3.endpoint) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.endpoint)
        yield proxy


def store_and_stop(cluster: Cluster, worker: Pages, keys: list[bytes], at_once: int) -> None:
    """The keys of a batch are a chain. Their pages are in the store afterwards."""
    for at in range(0, len(keys), at_once):
        chain = keys[at : at + at_once]
        assert all(worker.set(chain)) and worker.has(chain)
    assert cluster[0].stop(60) == 0


def test_neighbours_come_along_while_the_pool_has_room(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    store = f"file://{tmp_path}/store"
    cluster = make_cluster(1, **options(store, **STORES))
    keys, others = keys_of("chain", 128), keys_of("others", 300)
    store_and_stop(cluster, cluster[0].attach(room_pages=128), keys, 128)

    new = make_cluster(1, **options(store))
    wait_known(new[0], 128)
    reader = new[0].attach()
    assert reader.has(keys[:8])
    eventually(lambda: cold_of(new[0])["ahead_pages"] == 120, 20, lambda: str(cold_of(new[0])))
    counted = cold_of(new[0])
    assert counted["ahead_used_pages"] == 0
    reads = counted["requests"]["get"]
    assert found(reader, keys[8:]) == 120
    counted = cold_of(new[0])
    assert (counted["ahead_pages"], counted["ahead_used_pages"]) == (120, 120)
    assert counted["read_pages"] == 128 and counted["requests"]["get"] == reads
    new[0].kill()

    full = make_cluster(1, **options(store, cold_after_uses=2))
    wait_known(full[0], 128)
    reader = full[0].attach()
    for at in range(0, len(others), 10):
        assert all(reader.set(others[at : at + 10])) and reader.has(others[at : at + 10])
    assert reader.has(keys[:8])
    assert cold_of(full[0])["ahead_pages"] < 8
    assert found(reader, others[-200:]) == 200


def test_forecast_tells_pages_of_the_store_apart_and_learns_that_it_is_slow(
    make_cluster: MakeCluster, slow_s3: StoreProxy
) -> None:
    store = f"s3://{BUCKET}/prefix"
    more = {"pool_size": "128MiB"}
    cluster = make_cluster(1, **options(store, **STORES) | more)
    keys = keys_of("cold", 48)
    store_and_stop(cluster, cluster[0].attach(page_bytes=MIB, room_pages=8), keys, 8)
    new = make_cluster(1, **options(store) | more)
    wait_known(new[0], 48)
    reader = new[0].attach(page_bytes=MIB, room_pages=8, timeout_s=20)
    slow_s3.plan(late_s={"/prefix/pages/": 1.0})
    for at in range(0, 40, 8):
        assert reader.has(keys[at : at + 8])
    quick, slow = Worth(1000, 100_000), Worth(1000, 1000)  # tokens of a page, tokens per second
    cold, warm = keys[40:], keys[:8]
    forecast = reader.client.forecast(cold)
    assert list(forecast.present) == list(forecast.cold) == [True] * 8
    assert forecast.p50_s[-1] > 0.3
    assert quick.judge(cold, forecast) == 0, "80 ms to compute"
    assert slow.judge(cold, forecast) == 8, "8 s to compute"
    forecast = reader.client.forecast([*warm, b"nowhere", *cold], every=True)
    assert list(forecast.present) == [True] * 8 + [False] + [True] * 8
    assert list(forecast.cold[:9]) == [False] * 9
    assert quick.judge(warm, forecast) == 8


def test_a_get_into_a_gpu_asks_the_store(make_cluster: MakeCluster, tmp_path: Path) -> None:
    store = f"file://{tmp_path}/store"
    cluster = make_cluster(1, **options(store, gpu="stand-in", **STORES))
    keys = keys_of("gpu", 32)
    with (
        Client(cluster[0].socket_path, "gpu", timeout_s=20) as client,
        stand_in_pages(client, 32) as pages,
    ):
        assert all(pages.store(client, keys))
        pages.check(client, keys)
    assert cluster[0].stop(60) == 0
    new = make_cluster(1, **options(store, gpu="stand-in"))
    wait_known(new[0], 32)
    with (
        Client(new[0].socket_path, "gpu", timeout_s=20) as client,
        stand_in_pages(client, 32) as pages,
    ):
        pages.check(client, keys)
    assert cold_of(new[0])["read_pages"] == 32
