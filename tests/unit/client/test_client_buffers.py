"""Buffers of any kind: shared ones are used in place, others are copied through a bounded
region."""

import logging
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from harness import ipc_stand_in as ipc
from harness.clock import now_s, seconds
from harness.ipc_stand_in import IpcStandIn

from peercache_client import Client, Status, notes


@pytest.fixture
def client(daemon: IpcStandIn) -> Iterator[Client]:
    with Client(daemon.path, "space", timeout_s=seconds(10), staging_bytes=4096) as one:
        yield one


def page(i: int, size: int) -> bytes:
    return bytes((i * 31 + k) & 0xFF for k in range(size))


def test_unshared_buffers_come_back_byte_for_byte(client: Client) -> None:
    sizes = [1, 63, 64, 65, 1000, 4096, 4095]
    keys = [f"k{size}" for size in sizes]
    assert all(client.batch_set_buffers(keys, [page(i, n) for i, n in enumerate(sizes)]))
    places = [bytearray(size) for size in sizes]
    assert all(client.batch_get_buffers(keys, places))
    assert [bytes(place) for place in places] == [page(i, n) for i, n in enumerate(sizes)]


def test_rounds_through_the_staging_region_stay_one_chain(
    client: Client, daemon: IpcStandIn
) -> None:
    keys = [f"k{i}" for i in range(5)]
    pages = [page(i, 2000) for i in range(5)]
    assert all(client.batch_set_buffers(keys, pages, parent="root"))
    assert [request.keys for request in daemon.asked(ipc.SET)] == [
        [b"k0", b"k1"],
        [b"k2", b"k3"],
        [b"k4"],
    ]
    assert [request.parent for request in daemon.asked(ipc.SET)] == [b"root", b"k1", b"k3"]


def test_buffers_inside_a_region_are_not_copied(client: Client, daemon: IpcStandIn) -> None:
    region = client.alloc(1 << 16)
    region.view[:] = page(3, 1 << 16)
    views = [region.view[i * 5000 : i * 5000 + 4999] for i in range(4)]
    keys = ["a", "b", "c", "d"]
    assert all(client.batch_set_buffers(keys, views))
    (request,) = daemon.asked(ipc.SET)
    assert request.offsets == [0, 5000, 10000, 15000]
    targets = [region.view[40000 + i * 5000 : 40000 + i * 5000 + 4999] for i in range(4)]
    assert all(client.batch_get_buffers(keys, targets))
    assert all(bytes(a) == bytes(b) for a, b in zip(views, targets, strict=True))
    assert len(daemon.asked(ipc.REGISTER)) == 1


def test_shared_and_unshared_buffers_mix_in_order(client: Client, daemon: IpcStandIn) -> None:
    region = client.alloc(8192)
    region.view[100:200] = page(1, 100)
    assert all(
        client.batch_set_buffers(["a", "b", "c"], [page(0, 100), region.view[100:200], page(2, 10)])
    )
    (request,) = daemon.asked(ipc.SET)
    assert request.keys == [b"a", b"b", b"c"]
    assert len(set(request.regions)) == 2
    assert client.get("b", 100) == page(1, 100)
    assert client.get("c", 10) == page(2, 10)


def test_a_miss_leaves_an_unshared_buffer_as_it_was(client: Client) -> None:
    client.set("there", b"page")
    place, kept = bytearray(4), bytearray(b"keep")
    assert client.batch_get_buffers(["there", "not"], [place, kept]) == [
        Status.ok,
        Status.absent,
    ]
    assert (bytes(place), bytes(kept)) == (b"page", b"keep")


def test_page_larger_than_the_staging_region_fails_alone(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    assert client.batch_set_buffers(["a", "big", "b"], [b"a", bytes(4097), b"b"]) == [
        Status.ok,
        Status.too_large,
        Status.ok,
    ]
    assert client.get("b", 1) == b"b"
    assert client.get("big", 4097) is None
    notes.flush()
    assert caplog.text.count("larger than staging_bytes (4096)") == 1


def test_copying_path_is_logged_once(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        for _ in range(5):
            client.set("k", b"page")
    notes.flush()
    assert caplog.text.count("copied") == 1


def test_typed_and_readonly_buffers_will_do(client: Client) -> None:
    numpy = pytest.importorskip("numpy")
    source = numpy.arange(100, dtype=numpy.float32).reshape(10, 10)
    source.flags.writeable = False
    target = numpy.zeros((10, 10), dtype=numpy.float32)
    assert client.set("k", source)
    assert all(client.batch_get_buffers(["k"], [target]))
    assert (target == source).all()


def test_overlapping_buffers_are_bad_range(client: Client) -> None:
    assert all(client.batch_set_buffers(["a", "b", "c"], [page(i, 100) for i in range(3)]))
    memory = bytearray(300)
    views = [memoryview(memory)[at : at + 100] for at in (0, 199, 100)]
    statuses = client.batch_get_buffers(["a", "b", "c"], views)
    assert statuses == [Status.ok, Status.bad_range, Status.ok]
    assert bytes(memory) == page(0, 100) + page(2, 100) + bytes(100)


def test_another_regions_address_is_never_confused_with_ours(client: Client) -> None:
    """Another mapping of the same size soon reuses the address of an unmapped region."""
    stop = threading.Event()

    def churn() -> None:
        while not stop.is_set():
            client.alloc(8192).close()

    def ours() -> int:
        rounds, end = 0, now_s() + seconds(1)
        while now_s() < end or rounds < 2:
            with client.alloc(8192) as region:
                region.view[:100] = page(rounds, 100)
                answers = [client.set("ours", region.view[:100], timeout_s=seconds(10))]
                answers += client.remove(["ours"], timeout_s=seconds(10))
            # The stand-in shares this process with threads that never rest. On a busy machine it
            # greets a new connection too late, and the client takes it for gone for a moment.
            if Status.no_daemon not in answers:
                assert answers == [Status.ok, Status.ok]
                rounds += 1
        return rounds

    with ThreadPoolExecutor(3) as pool:
        churning = [pool.submit(churn) for _ in range(2)]
        try:
            assert pool.submit(ours).result() > 1
        finally:
            stop.set()
        for each in churning:
            each.result()
