"""`forecast` tells how long loads would take, from loads that were measured."""

import time

import pytest
from bench import forecast as bench
from harness.cluster import Cluster
from harness.fixtures import MakeCluster
from harness.netns import Network
from harness.pages import keys_of
from harness.waiting import eventually

from peercache_client import Status
from peercache_client.forecast import Judged
from peercache_client.worth import Worth

PAGE = 64 << 10
PAGES = 64
SLOW_BITS_PER_S = 16_000_000  # 2 MB/s: all pages take 2 s


@pytest.fixture
def nodes(three_nodes: Cluster) -> Cluster:
    return three_nodes


@pytest.mark.netns
def test_the_forecast_of_a_slowed_holder_grows(network: Network, on_hosts: MakeCluster) -> None:
    hosts = on_hosts(pool_size=256 << 20, replica_share=0)
    quick, slow = keys_of("quick", PAGES), keys_of("slow", PAGES)
    assert all(hosts[0].attach(page_bytes=PAGE).set(quick))
    assert all(hosts[1].attach(page_bytes=PAGE).set(slow))
    reader = hosts[2].attach(page_bytes=PAGE, timeout_s=10)
    eventually(lambda: reader.has(quick) and reader.has(slow), 30)
    before = reader.client.forecast(slow)
    assert before.present == [True] * PAGES
    assert before.p50_s == sorted(before.p50_s), "more pages take no less time"
    assert all(p50 <= p90 for p50, p90 in zip(before.p50_s, before.p90_s, strict=True))

    network.slow_down("b", SLOW_BITS_PER_S)
    began = time.monotonic()
    assert reader.has(slow)
    took_s = time.monotonic() - began
    assert took_s > 1, "it is slow indeed"
    assert reader.client.forecast(slow).p90_s[-1] == pytest.approx(took_s, rel=0.5)
    assert reader.client.forecast(quick).p90_s[-1] < took_s / 4


@pytest.mark.netns
def test_a_load_that_is_given_up_teaches_the_forecast(
    network: Network, on_hosts: MakeCluster
) -> None:
    """Its worker waits no longer than the time that it gave. After a few, it computes at once."""
    hosts = on_hosts(pool_size=256 << 20, replica_share=0)
    keys = keys_of("slow", PAGES)
    assert all(hosts[0].attach(page_bytes=PAGE).set(keys))
    reader = hosts[1].attach(page_bytes=PAGE, timeout_s=10)
    eventually(lambda: reader.has(keys), 30)
    network.slow_down("a", SLOW_BITS_PER_S)
    worth = Worth(100, prefill_tokens_per_s=12_800)
    assert worth.judge(keys, reader.client.forecast(keys)) == PAGES, "computing takes 0.5 s"
    offsets = [PAGE * i for i in range(PAGES)]
    given_up = []
    while worth.judge(keys, forecast := reader.client.forecast(keys)) == PAGES:
        limit_s = worth.give_up_s(keys)
        assert limit_s is not None
        assert limit_s <= 1
        began = time.monotonic()
        statuses = reader.client.batch_get(keys, reader.region, offsets, PAGE, give_up_s=limit_s)
        assert time.monotonic() - began < limit_s + 1
        given_up.append(statuses.count(Status.deadline))
        assert given_up[-1] > 0
        worth.loaded(keys, given_up[-1])
        eventually(lambda: all(reader.client.contains(keys)), 20)  # it was suspect, perhaps
    assert 1 <= len(given_up) <= 6
    assert forecast.p90_s[-1] > 1
    reader.client.forecast(keys, judged=worth.take_news())
    assert hosts[1].status()["operations"]["given_up_pages"] == sum(given_up)


def test_pages_of_the_own_pool_are_forecast_to_come_at_once(nodes: Cluster) -> None:
    keys = keys_of("here", PAGES)
    worker = nodes[0].attach(page_bytes=PAGE)
    assert all(worker.set(keys))
    forecast = worker.client.forecast([*keys, b"missing", keys[0]])
    assert forecast.present == [True] * PAGES + [False] * 2
    assert 0 < forecast.p90_s[PAGES - 1] < 0.5
    assert forecast.p90_s[PAGES:] == forecast.p90_s[PAGES - 1 : PAGES] * 2
    every = worker.client.forecast([b"missing", *keys], every=True)
    assert every.present == [False] + [True] * PAGES
    assert every.p50_s[0] == 0 < every.p50_s[1] < every.p50_s[-1]


def test_the_status_sums_the_judgements_of_workers(nodes: Cluster) -> None:
    judged = Judged(cut_pages=3, given_up_pages=2, cut_s=1.5, computed_s=0.25)
    for _ in range(2):
        client = nodes[0].attach().client
        client.forecast([b"any"], judged=judged)
        client.forecast([b"any"])
    found = nodes[0].status()["operations"]
    assert (found["cut_pages"], found["given_up_pages"]) == (6, 4)
    assert (found["cut_us"], found["computed_us"]) == (3_000_000, 500_000)


@pytest.mark.slow
@pytest.mark.netns
def test_a_slow_holder_costs_little_more_than_no_cache(network: Network) -> None:
    """One cell of `make bench-forecast`, for a shorter time."""
    found = bench.measure("slow holder", 15_000, run_s=10)
    assert found["load"]["p99_s"] > 5, "it is slow indeed"
    assert found["given_up_pages"] > 0
    assert bench.ratio(found) < 1.5


def test_a_forecast_may_have_as_many_keys_as_any_request(nodes: Cluster) -> None:
    worker = nodes[0].attach(page_bytes=64)
    some = keys_of("many", 50)
    assert all(worker.set(some))
    keys = 2000 * some  # in two frames
    for every in (False, True):
        forecast = worker.client.forecast([*keys, b"missing"], every=every, timeout_s=30)
        assert forecast.present == [True] * len(keys) + [False]
        assert forecast.p50_s == sorted(forecast.p50_s)
        assert len(forecast.p50_s) == len(forecast.p90_s) == len(keys) + 1
