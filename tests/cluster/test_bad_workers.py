"""A misbehaving worker gets a clear answer, and other workers are not affected."""

import os
import random
import struct
from collections.abc import Iterator

import pytest
from harness import raw_worker as raw
from harness.cluster import Cluster, Daemon
from harness.pages import keys_of
from harness.raw_worker import HEADER, RawWorker
from harness.waiting import eventually

from peercache_client import Status

MIB = 1 << 20


@pytest.fixture
def daemon(three_nodes: Cluster) -> Iterator[Daemon]:
    """A shared daemon. It must serve other workers before, during and after each test."""
    witness, reader = three_nodes[0].attach(), three_nodes[1].attach()
    keys = keys_of("witness", 8)
    assert all(witness.set(keys))
    pid = three_nodes[0].pid
    yield three_nodes[0]
    assert three_nodes[0].alive
    assert three_nodes[0].pid == pid
    assert witness.has(keys), "another worker of this daemon noticed"
    assert reader.has(keys), "a worker of another daemon noticed"


@pytest.fixture
def worker(daemon: Daemon) -> Iterator[RawWorker]:
    with RawWorker(daemon.socket_path) as attached:
        yield attached


def test_health_reports_a_copy_still_running_after_the_worker_gave_up(
    daemon: Daemon, worker: RawWorker
) -> None:
    worker.write_gate(fence=0, writers=1)
    assert "still copying" not in daemon.sentences()
    worker.write_gate(fence=1, writers=1)
    lines = daemon.sentences().splitlines()
    assert any(f"pid {os.getpid()}" in line and "still copying" in line for line in lines)
    worker.write_gate(fence=1, writers=0)
    assert "still copying" not in daemon.sentences()


# --- malformed frames ---------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(10))
def test_garbage_is_answered_with_an_error_and_hung_up_on(daemon: Daemon, seed: int) -> None:
    with RawWorker(daemon.socket_path, hello=seed % 2 == 0) as worker:
        worker.send(b"\xff\xff\xff\x7f" + random.Random(seed).randbytes(5000))
        reply = worker.receive()
        assert reply.error == raw.BAD_FRAME
        assert "bytes" in reply.text
        assert worker.closed()


def test_half_a_frame_and_then_nothing_harms_nobody(daemon: Daemon) -> None:
    for size in (1, 23, 24, 100):
        frame = HEADER.pack(1000, raw.GET, 0, 1, 10, 1000, 0) + bytes(100)
        with RawWorker(daemon.socket_path) as worker:
            worker.send(frame[:size])


@pytest.mark.parametrize(
    ("count", "body", "names"),
    [
        (65_537, b"", "65537"),
        (2**32 - 1, b"", "4294967295"),
        (10, bytes(50), "50"),
        (1, struct.pack("<IIQI", 5, 1, 0, 10) + b"four", "5"),
        (1, struct.pack("<IIQI", 3, 1, 0, 10) + b"four", "3"),
        (2, struct.pack("<IIIIQQII", 2**31, 2**31, 1, 1, 0, 0, 1, 1) + b"x", "4294967296"),
    ],
)
def test_counts_that_do_not_add_up_are_refused_with_the_number(
    worker: RawWorker, count: int, body: bytes, names: str
) -> None:
    reply = worker.ask(raw.GET, body, count=count)
    assert reply.error == raw.BAD_FRAME
    assert names in reply.text
    assert worker.closed()


def test_a_body_above_the_limit_is_refused_before_it_is_read(worker: RawWorker) -> None:
    worker.send(HEADER.pack(2**32 - 1, raw.SET, 0, 1, 1, 1000, 0))
    reply = worker.receive()
    assert reply.error == raw.BAD_FRAME
    assert "4294967295" in reply.text
    assert worker.closed()


def test_a_frame_with_an_unknown_flag_or_an_unnamed_feature_is_refused(daemon: Daemon) -> None:
    """Of features HELLO names all but the missing ones. `took` = 4 is the time of no call."""
    for missing, op, flags, took in (
        (0, raw.PING, 0, 4),
        (0, raw.PING, 0x8000, 0),
        (1, raw.GET, 32, 0),
        (2, raw.PIN, 0, 0),
        (4, raw.PING, 0, 5),
    ):
        with RawWorker(daemon.socket_path, hello=False) as worker:
            worker.hello(features=7 - missing)
            reply = worker.ask(op, flags=flags, took=took)
            assert reply.error == raw.BAD_FRAME
            assert not missing or f"features {missing}," in reply.text
            assert worker.closed()
    with RawWorker(daemon.socket_path, hello=False) as worker:
        worker.hello(features=4)
        assert worker.ask(raw.PING, took=5).error == 0


def test_an_unknown_op_is_named_and_the_connection_goes_on(worker: RawWorker) -> None:
    reply = worker.ask(99)
    assert reply.error == raw.UNKNOWN_OP
    assert "99" in reply.text
    assert worker.ask(raw.PING).error == 0


def test_nothing_works_before_hello(daemon: Daemon) -> None:
    for op in (raw.PING, raw.GET, raw.CLEAR, raw.STATS):
        with RawWorker(daemon.socket_path, hello=False) as worker:
            assert worker.ask(op).error == raw.NOT_ATTACHED


def test_version_mismatch_error_names_both_protocol_versions(daemon: Daemon) -> None:
    with RawWorker(daemon.socket_path, hello=False) as worker:
        reply = worker.hello(version=77)
        assert reply.error == raw.BAD_VERSION
        assert "77" in reply.text
        assert str(raw.PROTOCOL_VERSION) in reply.text


def test_a_made_up_token_joins_nobody(daemon: Daemon) -> None:
    with RawWorker(daemon.socket_path, hello=False) as worker:
        assert worker.hello(token=b"x" * 16).error == raw.NO_ATTACHMENT


# --- memory -------------------------------------------------------------------------------------


def test_a_truncated_region_is_lost_and_the_daemon_lives(daemon: Daemon) -> None:
    """The memory cannot be sealed, like a plain file on tmpfs."""
    with RawWorker(daemon.socket_path) as worker:
        file = os.memfd_create("unsealable", os.MFD_CLOEXEC)  # no MFD_ALLOW_SEALING
        try:
            os.ftruncate(file, 4 * MIB)
            region = worker.register(file, 4 * MIB).value
            keys = [b"truncated/%d" % n for n in range(4)]
            pages = [(key, region, n * MIB, MIB) for n, key in enumerate(keys)]
            assert worker.statuses(raw.SET, pages[:2]) == [Status.ok] * 2
            os.ftruncate(file, 4096)
            assert Status.region_lost in worker.statuses(raw.SET, pages[2:])
            assert Status.region_lost in worker.statuses(raw.GET, pages[:2])
            assert worker.ask(raw.PING).error == 0
            got = worker.ask(raw.EXISTS, raw.key_column(keys), count=4, flags=2)
            assert list(got.body) == [1, 1, 0, 0], "a page whose source was gone is served"
        finally:
            os.close(file)


def test_a_sealed_region_cannot_be_truncated(worker: RawWorker) -> None:
    file = worker.memfd(MIB)
    assert worker.register(file, MIB).error == 0
    with pytest.raises(PermissionError):
        os.ftruncate(file, 4096)


def test_a_region_larger_than_its_file_or_empty_is_refused(worker: RawWorker) -> None:
    file = worker.memfd(MIB)
    for size in (2 * MIB, 0, 2**63):
        reply = worker.register(file, size)
        assert reply.error != 0
        assert reply.text


def test_pipe_is_refused_as_a_region(daemon: Daemon) -> None:
    reading, writing = os.pipe()
    try:
        with RawWorker(daemon.socket_path) as worker:
            assert worker.register(reading, 4096).error != 0
    finally:
        os.close(reading)
        os.close(writing)


def test_the_regions_of_another_worker_are_out_of_reach(daemon: Daemon) -> None:
    with RawWorker(daemon.socket_path) as owner, RawWorker(daemon.socket_path) as thief:
        region, memory = owner.region(MIB)
        memory[:5] = b"mine!"
        assert thief.statuses(raw.SET, [(b"stolen", region, 0, 4096)]) == [Status.bad_region]
        page = [(b"stolen", region, 0, 4096)]
        assert owner.statuses(raw.SET, page) == [Status.ok]
        assert thief.statuses(raw.GET, page) == [Status.bad_region]
        assert memory[:5] == b"mine!"


def test_offsets_and_lengths_outside_the_region_are_refused_one_by_one(worker: RawWorker) -> None:
    region, memory = worker.region(MIB)
    memory[:] = b"\x11" * MIB
    outside = [(MIB, 1), (MIB - 10, 11), (2**64 - 1, 10), (2**64 - 4096, 4096), (0, 2**32 - 1)]
    pages = [(b"outside/%d" % n, region, at, size) for n, (at, size) in enumerate(outside)]
    inside = (b"inside", region, MIB - 4096, 4096)
    for op in (raw.SET, raw.GET):
        statuses = worker.statuses(op, [*pages, inside])
        assert statuses == [Status.bad_range] * len(pages) + [Status.ok]
    assert worker.statuses(raw.SET, [(b"empty page", region, 0, 0)]) == [Status.bad_range]
    assert memory[:] == b"\x11" * MIB


# --- keys and pages -----------------------------------------------------------------------------


def test_empty_and_megabyte_keys_are_refused_one_by_one(worker: RawWorker) -> None:
    region, _ = worker.region(MIB)
    keys = [b"", b"k" * MIB, b"k" * 4097, b"k" * 4096, b"\x00"]
    expected = [Status.bad_key] * 3 + [Status.ok] * 2
    pages = [(key, region, n * 4096, 4096) for n, key in enumerate(keys)]
    assert worker.statuses(raw.SET, pages) == expected
    assert worker.statuses(raw.GET, pages) == expected
    reply = worker.ask(raw.EXISTS, raw.key_column(keys), count=len(keys), flags=2)
    assert (reply.error, list(reply.body), reply.value) == (0, [0, 0, 0, 1, 1], 0)


def test_a_key_twice_in_one_set_counts_once(worker: RawWorker) -> None:
    region, memory = worker.region(MIB)
    memory[0:4096], memory[4096:8192] = b"\x01" * 4096, b"\x02" * 4096
    twice = [(b"twice", region, 0, 4096), (b"twice", region, 4096, 4096)]
    assert worker.statuses(raw.SET, twice) == [Status.ok, Status.duplicate_key]
    assert worker.statuses(raw.GET, [(b"twice", region, 8192, 4096)]) == [Status.ok]
    assert memory[8192:12288] == b"\x01" * 4096


def test_a_page_larger_than_the_pool_is_refused_and_flushes_nothing(
    daemon: Daemon, worker: RawWorker
) -> None:
    size = 256 * MIB
    region, _ = worker.region(size)
    evictions = daemon.status()["pool"]["evictions"]
    assert worker.statuses(raw.SET, [(b"huge", region, 0, size)]) == [Status.too_large]
    assert daemon.status()["pool"]["evictions"] == evictions


def test_a_batch_of_the_largest_count_is_served(worker: RawWorker) -> None:
    keys = [b"many/%d" % n for n in range(65_536)]
    reply = worker.ask(raw.EXISTS, raw.key_column(keys), count=len(keys), flags=2)
    assert (reply.error, len(reply.body), reply.value) == (0, 65_536, 0)


# --- leaving ------------------------------------------------------------------------------------


def test_a_worker_that_hangs_up_without_waiting_leaves_nothing_behind(daemon: Daemon) -> None:
    before = daemon.status()["ipc"]["connections"]
    for _ in range(20):
        with RawWorker(daemon.socket_path) as worker:
            region, _ = worker.region(MIB)
            pages = [(b"unread/%d" % n, region, 0, MIB) for n in range(8)]
            body = raw.columns(pages)
            worker.send(HEADER.pack(len(body), raw.SET, 0, 1, 8, 1000, 0) + body)
    eventually(lambda: daemon.status()["ipc"]["connections"] <= before)
    now = daemon.status()
    assert now["pool"]["reserved"] == 0
    assert now["pool"]["pins"] == 0
