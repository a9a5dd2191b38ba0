"""Failures of devices and peers: right bytes or misses, recovery without a restart, and no leaked
RDMA objects."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial

import pytest
from harness.background import Background
from harness.cluster import Cluster, Daemon
from harness.fixtures import MakeCluster
from harness.pages import Pages, keys_of
from harness.waiting import eventually

from rdma.cables import cut, pulled
from rdma.rdma_devices import devices
from rdma.rdma_resources import channels_of, no_leaks

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

MIB = 1 << 20
LONG_S = 60


def two_rails_each(make_cluster: MakeCluster, **options: str | int) -> Cluster:
    rxe = devices()
    each = [{"device_names": f"{rxe[0]},{rxe[1]}"}, {"device_names": f"{rxe[2]},{rxe[3]}"}]
    return make_cluster(2, each=each, **options)


def rail_bytes(daemon: Daemon) -> list[int]:
    return [rail["bytes"] for rail in daemon.status()["transport"]["rails"]]


def rails_up(daemon: Daemon) -> list[bool]:
    return [rail["up"] for rail in daemon.status()["transport"]["rails"]]


def sentences(daemon: Daemon) -> str:
    return "\n".join(one["sentence"] for one in daemon.status()["health"])


def hits(pages: Pages, keys: list[bytes]) -> bool:
    return pages.has(keys)


def prepared(cluster: Cluster) -> tuple[Pages, Pages, list[bytes]]:
    """Pages at the holder and the reader, and 8 keys that were read, so that channels exist."""
    holder, reader = cluster.daemons
    writing = holder.attach(page_bytes=MIB, room_pages=8, timeout_s=30)
    reading = reader.attach(page_bytes=MIB, room_pages=8, timeout_s=8)
    keys = keys_of("before", 8)
    assert all(writing.set(keys))
    eventually(lambda: reading.has(keys), LONG_S, "all pages are read")
    return writing, reading, keys


@pytest.mark.parametrize("whose", ["reader", "holder"])
def test_a_pulled_cable_costs_no_more_than_misses_and_is_taken_again(
    make_cluster: MakeCluster, whose: str
) -> None:
    cluster = two_rails_each(make_cluster)
    holder, reader = cluster.daemons
    cable = devices()[2 if whose == "reader" else 0]
    side = reader if whose == "reader" else holder
    _, reading, keys = prepared(cluster)
    with no_leaks(holder, reader):
        with Background(lambda: reading.get(keys)) as reads:
            reads.wait_rounds(1)
            with pulled(cable):
                eventually(lambda: rails_up(side) == [False, True], 30, "the rail is out")
                assert "is down" in sentences(side)
                before = sum(rail_bytes(reader))
                eventually(
                    lambda: sum(rail_bytes(reader)) > before + 16 * MIB,
                    LONG_S,
                    "reads go on by the other rail",
                )
            eventually(lambda: rails_up(side) == [True, True], 30, "the rail is back")
            before_each = rail_bytes(reader)
            eventually(
                lambda: all(
                    now > then for now, then in zip(rail_bytes(reader), before_each, strict=True)
                ),
                LONG_S,
                "both rails are used again",
            )
        eventually(lambda: reading.has(keys), LONG_S, "all pages are read again")


def test_without_any_rail_pages_are_misses_until_one_is_back(make_cluster: MakeCluster) -> None:
    cluster = two_rails_each(make_cluster)
    holder, reader = cluster.daemons
    _, reading, keys = prepared(cluster)
    with no_leaks(holder, reader):
        with pulled(*devices()[2:4]):
            eventually(lambda: not any(rails_up(reader)), 30, "both rails are out")
            assert not any(reading.get(keys))
            assert "No rail is up" in sentences(reader)
        eventually(lambda: reading.has(keys), LONG_S, "all pages are read again")


def test_reads_move_from_a_silent_rail_to_the_other_rail(make_cluster: MakeCluster) -> None:
    # With 7, soft-RoCE retries for ever, so no device reports an error.
    cluster = two_rails_each(make_cluster, rdma_retry_count=7)
    _, reader = cluster.daemons
    _, _, keys = prepared(cluster)
    hasty = reader.attach(page_bytes=MIB, room_pages=8, timeout_s=3)
    with cut(devices()[2]):
        assert all(hasty.has(keys) for _ in range(10)), "the other rail has what this one has not"
        assert rails_up(reader) == [True, True]
    before = rail_bytes(reader)[0]
    eventually(
        lambda: hasty.has(keys) and rail_bytes(reader)[0] > before, LONG_S, "the rail is used again"
    )


def test_auto_goes_on_over_tcp_while_no_rail_is_up(make_cluster: MakeCluster) -> None:
    cluster = two_rails_each(make_cluster, protocol="auto")
    _, reader = cluster.daemons
    _, reading, keys = prepared(cluster)
    with pulled(*devices()[2:4]):
        eventually(lambda: not any(rails_up(reader)), 30, "both rails are out")
        eventually(lambda: reading.has(keys), LONG_S, "all pages are read over TCP")
        assert reader.status()["transport"]["fallback_reads"] > 0
        assert "come over TCP" in sentences(reader)
    eventually(lambda: all(rails_up(reader)), 30, "both rails are back")
    before = sum(rail_bytes(reader))
    eventually(
        lambda: reading.has(keys) and sum(rail_bytes(reader)) > before, LONG_S, "RDMA is back"
    )


def test_auto_falls_back_to_tcp_while_all_rails_are_silent(make_cluster: MakeCluster) -> None:
    cluster = two_rails_each(make_cluster, protocol="auto", rdma_retry_count=7)
    _, reader = cluster.daemons
    _, _, keys = prepared(cluster)
    hasty = reader.attach(page_bytes=MIB, room_pages=8, timeout_s=3)
    with cut(devices()[2]), cut(devices()[3]):
        eventually(
            lambda: all(hasty.has(keys) for _ in range(5)), LONG_S, "all pages are read over TCP"
        )
        transport = reader.status()["transport"]
        assert transport["fallback_peers"] == 1 and transport["fallback_reads"] > 0
        assert "No rail reaches 1 of the peers" in sentences(reader)
        assert rails_up(reader) == [True, True]
    before = sum(rail_bytes(reader))
    eventually(lambda: hasty.has(keys) and sum(rail_bytes(reader)) > before, LONG_S, "RDMA is back")
    eventually(lambda: reader.status()["transport"]["fallback_peers"] == 0, 5, "and said to be")


def test_holder_killed_mid_read_is_read_again_after_its_restart(make_cluster: MakeCluster) -> None:
    cluster = two_rails_each(make_cluster)
    _, reader = cluster.daemons
    holder = cluster[0]
    writing, reading, keys = prepared(cluster)
    with no_leaks(holder, reader):
        for _ in range(2):
            with Background(lambda: reading.get(keys)) as reads:
                reads.wait_rounds(1)
                holder.kill()
                reads.wait_rounds(2)
            assert not any(reading.get(keys)), "its pages went with it"
            holder.start()
            cluster.wait_complete(120)
            eventually(lambda: all(writing.set(keys)), LONG_S, "the pages are set again")
            eventually(lambda: reading.has(keys), LONG_S, "and read")
    assert reading.calls.longest_s < 10


def test_a_reader_that_dies_leaves_nothing_at_the_holder(make_cluster: MakeCluster) -> None:
    cluster = two_rails_each(make_cluster)
    holder, reader = cluster.daemons
    _, reading, keys = prepared(cluster)
    with no_leaks(holder):
        assert channels_of(holder)[1] > 0
        with Background(lambda: reading.get(keys)) as reads:
            reads.wait_rounds(1)
            reader.kill()
        eventually(lambda: channels_of(holder)[1] == 0, LONG_S, "its channels are freed")


def test_sixteen_workers_share_one_channel(make_cluster: MakeCluster) -> None:
    rxe = devices()
    each = [{"device_names": rxe[0]}, {"device_names": rxe[1]}]
    cluster = make_cluster(2, each=each, max_channels_per_peer=1)
    holder, reader = cluster.daemons
    keys = keys_of("for all", 64)
    with Pages(holder.socket_path, timeout_s=30) as writing:
        assert all(writing.set(keys))
    with ExitStack() as stack:
        workers = [
            stack.enter_context(Pages(reader.socket_path, room_pages=8, timeout_s=60))
            for _ in range(16)
        ]
        # A first read registers each worker's region, so it is there before and after.
        for worker in workers:
            eventually(partial(worker.has, keys[:1]), LONG_S, "the first page is read")
        with no_leaks(holder, reader), ThreadPoolExecutor(16) as threads:

            def work(number: int) -> bool:
                return all(
                    workers[number].has(keys[begin : begin + 8])
                    for _ in range(4)
                    for begin in range(0, 64, 8)
                )

            assert all(threads.map(work, range(16)))
        assert channels_of(reader)[0] == 1
        assert channels_of(holder)[1] == 1
