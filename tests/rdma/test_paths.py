"""RDMA fails while everything else works. With `auto`, no page is lost, no peer becomes suspect,
and RDMA is used again without a restart."""

from __future__ import annotations

import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest
from harness.clock import seconds
from harness.cluster import Cluster, Daemon
from harness.fixtures import MakeCluster
from harness.pages import Pages, keys_of
from harness.waiting import eventually

from rdma.cables import barred, cut, pulled
from rdma.rdma_devices import devices, netdev, roce_v2_ipv4_gid

MIB = 1 << 20
LONG_S = 60
GET_S = 8.0
ROUNDS = 10
START_S = 120.0


def rdma_bytes(daemon: Daemon) -> int:
    return sum(rail["bytes"] for rail in daemon.status()["transport"]["rails"])


def sentences(daemon: Daemon) -> str:
    return "\n".join(one["sentence"] for one in daemon.status()["health"])


def pair(make_cluster: MakeCluster, rails: int) -> tuple[Cluster, Pages, list[bytes]]:
    """Two nodes with `auto`, the reader's pages, and keys that it has read over RDMA."""
    rxe = devices()
    names = [",".join(rxe[:rails]), ",".join(rxe[rails : 2 * rails])]
    each = [{"device_names": some} for some in names]
    cluster = make_cluster(2, each=each, protocol="auto")
    holder, reader = cluster.daemons
    writing = holder.attach(page_bytes=MIB, room_pages=8, timeout_s=30)
    reading = reader.attach(page_bytes=MIB, room_pages=8, timeout_s=GET_S)
    keys = keys_of("pages", 8)
    assert all(writing.set(keys))
    eventually(lambda: reading.has(keys) and rdma_bytes(reader) > 8 * MIB, LONG_S, "read by RDMA")
    return cluster, reading, keys


def all_come(reading: Pages, keys: list[bytes]) -> None:
    for _ in range(ROUNDS):
        assert reading.has(keys)
    # A reader waits for silent RDMA for a quarter of the deadline, then it uses TCP.
    assert reading.calls.longest_s < seconds(GET_S) / 2


def is_taken_again(reader: Daemon, reading: Pages, keys: list[bytes]) -> None:
    before = rdma_bytes(reader)
    eventually(
        lambda: reading.has(keys) and rdma_bytes(reader) > before + 8 * MIB,
        LONG_S,
        "RDMA is taken again",
    )
    eventually(
        lambda: "does not reach" not in sentences(reader),
        LONG_S,
        lambda: f"and said to be; {sentences(reader)}",
    )


def test_rdma_outage_costs_no_page_and_peer_is_not_suspect(make_cluster: MakeCluster) -> None:
    cluster, reading, keys = pair(make_cluster, 1)
    reader = cluster[1]
    with cut(devices()[1]):
        all_come(reading, keys)
        assert "does not reach a" in sentences(reader)
        assert "is suspect" not in sentences(reader)
        eventually(lambda: "does not reach a" in reader.log_text(), LONG_S, "the log says it")
        assert reader.status()["transport"]["fallback_reads"] >= ROUNDS
    is_taken_again(reader, reading, keys)


@pytest.mark.slow
def test_one_dead_rail_of_two_costs_no_page(make_cluster: MakeCluster) -> None:
    cluster, reading, keys = pair(make_cluster, 2)
    reader = cluster[1]
    with cut(devices()[2]):
        all_come(reading, keys)
        assert "does not reach a" in sentences(reader)
        before = rdma_bytes(reader)
        all_come(reading, keys)
        assert rdma_bytes(reader) >= before + ROUNDS * 8 * MIB, "the other rail has them all"
    is_taken_again(reader, reading, keys)


def side_of(cluster: Cluster, whose: str) -> tuple[Daemon, str]:
    """The holder or reader and its device, in a pair with one rail each."""
    place = ("holder", "reader").index(whose)
    return cluster[place], devices()[place]


def address(device: str, what: str, which: str) -> None:
    subprocess.run(["ip", "address", what, f"{which}/24", "dev", netdev(device)], check=True)


@pytest.mark.slow
@pytest.mark.parametrize("whose", ["reader", "holder"])
def test_an_address_that_comes_back_at_another_place_is_followed(
    make_cluster: MakeCluster, whose: str
) -> None:
    cluster, reading, keys = pair(make_cluster, 1)
    reader = cluster[1]
    side, device = side_of(cluster, whose)
    own = roce_v2_ipv4_gid(device)
    other = "10.99.0.99"
    # Otherwise the kernel would remove the second address together with the first.
    Path(f"/proc/sys/net/ipv4/conf/{netdev(device)}/promote_secondaries").write_text("1")
    address(device, "del", str(own.address))
    address(device, "add", other)  # takes its place in the table
    address(device, "add", str(own.address))
    all_come(reading, keys)
    is_taken_again(reader, reading, keys)
    address(device, "del", other)
    all_come(reading, keys)
    is_taken_again(reader, reading, keys)
    (rail,) = side.status()["transport"]["rails"]
    assert rail["gid"] == str(own.address)
    assert rail["gid_index"] != own.index


def set_mtu(device: str, mtu: int) -> None:
    subprocess.run(["ip", "link", "set", netdev(device), "mtu", str(mtu)], check=True)


@pytest.mark.slow
@pytest.mark.parametrize("whose", ["reader", "holder"])
def test_an_mtu_that_is_lowered_is_followed(make_cluster: MakeCluster, whose: str) -> None:
    cluster, reading, keys = pair(make_cluster, 1)
    reader = cluster[1]
    side, device = side_of(cluster, whose)
    with ExitStack() as stack:
        stack.callback(set_mtu, device, 9000)
        set_mtu(device, 1500)
        eventually(lambda: side.status()["transport"]["rails"][0]["mtu"] == 1024, LONG_S)
        all_come(reading, keys)
        is_taken_again(reader, reading, keys)


@pytest.mark.slow
def test_named_port_down_at_start_is_used_once_it_comes_up(make_cluster: MakeCluster) -> None:
    every = devices()
    each = [{"device_names": device} for device in every[:2]]
    cluster = make_cluster(2, start=False, each=each, protocol="auto")
    holder, reader = cluster.daemons
    keys = keys_of("pages", 8)
    with pulled(every[1]):
        cluster.start(START_S)
        assert all(holder.attach(page_bytes=MIB, room_pages=8, timeout_s=30).set(keys))
        reading = reader.attach(page_bytes=MIB, room_pages=8, timeout_s=GET_S)
        assert reading.has(keys)
        assert "is down" in sentences(reader)
    is_taken_again(reader, reading, keys)


@pytest.mark.slow
def test_while_no_tcp_connection_to_data_port_works_pages_come_by_rdma(
    make_cluster: MakeCluster,
) -> None:
    cluster, reading, keys = pair(make_cluster, 1)
    _, reader = cluster.daemons
    with barred(*(daemon.data_port for daemon in cluster.daemons)):
        before = rdma_bytes(reader)
        all_come(reading, keys)
        assert rdma_bytes(reader) >= before + ROUNDS * 8 * MIB


@pytest.mark.slow
def test_peer_without_grpc_is_suspect_and_its_pages_miss_quickly(make_cluster: MakeCluster) -> None:
    cluster, reading, keys = pair(make_cluster, 1)
    _, reader = cluster.daemons
    with barred(*(daemon.meta_port for daemon in cluster.daemons)):
        eventually(lambda: "is suspect" in sentences(reader), LONG_S, "the peer is suspect")
        reading.calls.forget_longest()
        for _ in range(ROUNDS):
            assert not any(reading.get(keys))
        reading.calls.check_none_waited()
    eventually(lambda: reading.has(keys), LONG_S, "all pages are read again")
    assert "is suspect" not in sentences(reader)
