"""Without a daemon calls miss at once. When it returns, the client reconnects by itself."""

import logging
import os
import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import ipc_stand_in as ipc
from harness.clock import now_s, seconds
from harness.ipc_stand_in import IpcStandIn
from harness.waiting import eventually

from peercache_client import Client, Region, Status, notes


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[IpcStandIn]:
    stand_in = IpcStandIn(tmp_path / "d.sock")
    yield stand_in
    stand_in.stop()


def all_calls_miss(client: Client, region: Region) -> None:
    assert client.batch_set(["k"], region, [0], 4) == [Status.no_daemon]
    assert client.batch_get(["k", "l"], region, [0, 8], 4) == [Status.no_daemon] * 2
    assert client.set("k", b"page") is Status.no_daemon
    assert client.get("k", 4) is None
    assert client.batch_exists(["k"]) == 0
    assert client.contains(["k", "l"]) == [False, False]
    assert client.remove(["k"]) == [Status.no_daemon]
    assert client.clear() is False
    assert client.stats()["connected"] is False
    assert client.ping() is False


def test_without_a_daemon_every_call_is_a_miss(client: Client) -> None:
    all_calls_miss(client, client.alloc(4096))
    assert client.last_error


def test_misses_without_a_daemon_take_less_than_a_millisecond(client: Client) -> None:
    keys = [f"{i:064x}" for i in range(128)]
    region = client.alloc(4096)
    offsets = [0] * 128
    client.ping()
    took = []
    for _ in range(50):
        began = now_s()
        client.batch_exists(keys)
        client.batch_get(keys, region, offsets, 4)
        took.append((now_s() - began) / 2)
    assert sorted(took)[25] < seconds(0.001)


def test_a_daemon_that_starts_later_is_found(client: Client, daemon: IpcStandIn) -> None:
    region = client.alloc(4096)
    assert not client.ping()
    daemon.start()
    eventually(client.ping)
    region.view[:4] = b"page"
    assert all(client.batch_set(["k"], region, [0], 4))
    assert client.last_error == ""


def test_after_a_restart_regions_are_registered_anew(client: Client, daemon: IpcStandIn) -> None:
    daemon.start()
    regions = [client.alloc(4096) for _ in range(3)]
    regions[0].view[:4] = b"page"
    assert all(client.batch_set(["k"], regions[0], [0], 4))
    daemon.stop()
    assert client.batch_get(["k"], regions[1], [0], 4) == [Status.no_daemon]
    daemon.start()
    eventually(client.ping)
    assert all(client.batch_get(["k"], regions[1], [0], 4))
    assert all(client.batch_get(["k"], regions[2], [0], 4))
    assert bytes(regions[1].view[:4]) == bytes(regions[2].view[:4]) == b"page"


def test_a_restart_between_two_calls_is_not_even_a_miss(client: Client, daemon: IpcStandIn) -> None:
    daemon.start()
    region = client.alloc(4096)
    region.view[:4] = b"page"
    assert all(client.batch_set(["k"], region, [0], 4))
    daemon.stop()
    daemon.start()
    assert client.batch_exists(["k"]) == 1
    assert all(client.batch_get(["k"], region, [100], 4))
    assert bytes(region.view[100:104]) == b"page"


def test_a_region_closed_while_the_daemon_is_away_does_not_come_back(
    client: Client, daemon: IpcStandIn
) -> None:
    daemon.start()
    gone, kept = client.alloc(4096), client.alloc(4096)
    daemon.stop()
    assert not client.ping()
    gone.close()
    daemon.requests.clear()
    daemon.start()
    eventually(client.ping)
    assert client.batch_set(["k"], kept, [0], 4) == [Status.ok]
    assert len(daemon.asked(ipc.REGISTER)) == 1


def test_a_daemon_that_dies_in_the_middle_is_a_miss(client: Client, daemon: IpcStandIn) -> None:
    daemon.start()
    region = client.alloc(4096)
    daemon.die_on = {ipc.GET}
    assert client.batch_get(["k"], region, [0], 4) == [Status.no_daemon]
    daemon.die_on = set()
    assert client.batch_get(["k"], region, [0], 4) == [Status.absent]


def test_calls_of_all_threads_share_the_connections_of_one_attachment(
    client: Client, daemon: IpcStandIn
) -> None:
    daemon.start()
    region = client.alloc(1 << 16)
    statuses: list[Status] = []
    together = threading.Barrier(4)

    def work(i: int) -> None:
        together.wait()
        region.view[i * 8 : i * 8 + 4] = b"pag%d" % i
        statuses.extend(client.batch_set([f"k{i}"], region, [i * 8], 4))
        statuses.extend(client.batch_get([f"k{i}"], region, [1024 + i * 8], 4))
        together.wait()

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert statuses == [Status.ok] * 8
    assert len(daemon.asked(ipc.HELLO)) <= 4, "as many as there are calls at once"
    assert len(daemon.asked(ipc.REGISTER)) == 1
    assert len(daemon.attachments) == 1


def test_a_forked_child_attaches_by_itself(client: Client, daemon: IpcStandIn) -> None:
    daemon.start()
    region = client.alloc(4096)
    region.view[:4] = b"page"
    assert all(client.batch_set(["k"], region, [0], 4))
    before = daemon.connections
    pid = os.fork()
    if pid == 0:
        fine = all(client.batch_get(["k"], region, [200], 4))
        fine = fine and bytes(region.view[200:204]) == b"page"
        os._exit(0 if fine else 1)
    _, status = os.waitpid(pid, 0)
    assert status == 0
    assert daemon.attachments_made == 2, "what the child does with its regions is its own affair"
    assert bytes(region.view[200:204]) == b"page", "the memory is shared, the connection is not"
    eventually(lambda: daemon.connections == before)
    assert all(client.batch_get(["k"], region, [300], 4)), "the parent's goes on"


def test_an_idle_forked_child_keeps_nothing_of_its_parents_open(
    client: Client, daemon: IpcStandIn
) -> None:
    daemon.start()
    client.ping()
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(writer)
        os.read(reader, 1)  # waits until the parent is done
        os._exit(0)
    client.close()
    try:
        eventually(lambda: daemon.connections == 0, what="the daemon sees the parent leave")
    finally:
        os.close(writer)
        os.close(reader)
        os.waitpid(pid, 0)


def test_outage_met_by_many_calls_is_logged_once(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        for _ in range(100):
            client.batch_exists(["k"])
    notes.flush()
    assert len(caplog.records) == 1
    assert "misses" in caplog.text


def test_a_closed_client_answers_misses(client: Client, daemon: IpcStandIn) -> None:
    daemon.start()
    region = client.alloc(4096)
    client.close()
    client.close()
    all_calls_miss(client, region)
    eventually(lambda: daemon.connections == 0)


def test_client_starts_no_threads_and_disconnects_when_collected(
    tmp_path: Path, daemon: IpcStandIn
) -> None:
    before = threading.active_count()
    client = Client(tmp_path / "nobody.sock", "space")
    assert not client.ping()
    other = Client(daemon.path, "space")
    daemon.start()
    assert threading.active_count() == before + 1, "the stand-in's"
    assert other.ping()
    del client, other
    eventually(lambda: daemon.connections == 0)


def test_regions_closed_during_a_hang_are_closed_at_the_daemon_later(
    client: Client, daemon: IpcStandIn
) -> None:
    daemon.start()
    regions = [client.alloc(4096) for _ in range(4)]
    daemon.hang_on = {ipc.EXISTS}
    thread = threading.Thread(target=lambda: client.batch_exists(["k"], timeout_s=seconds(0.5)))
    thread.start()
    assert daemon.hanging.wait(seconds(10))
    assert client.ping(), "on another connection, which keeps what is attached"
    thread.join()
    daemon.die_on = {ipc.HELLO}
    for region in regions[1:]:
        region.close()
    daemon.hang_on = daemon.die_on = set()
    daemon.go_on.set()
    eventually(lambda: client.ping() and len(daemon.attachments[-1].regions) == 1)
    assert daemon.attachments_made == 1
    assert client.batch_set(["k"], regions[0], [0], 4) == [Status.ok]


def test_raising_log_handler_does_not_stop_the_reconnect(
    client: Client, daemon: IpcStandIn
) -> None:
    class Raising(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise RuntimeError("the program's own trouble")

    logger, handler = logging.getLogger("peercache_client"), Raising()
    logger.addHandler(handler)
    try:
        assert not client.ping()
        daemon.start()
        eventually(client.ping)
    finally:
        logger.removeHandler(handler)


def test_one_deadline_covers_sending_and_receiving(
    tmp_path: Path,
) -> None:
    """The call does not get its timeout once for sending and again for the reply."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "slow.sock"))
        listener.listen()
        with Client(tmp_path / "slow.sock", "space", timeout_s=seconds(10)) as client:
            thread = threading.Thread(target=answer_hello_and_read_slowly, args=(listener,))
            thread.start()
            began = now_s()
            keys = [b"k" * 4000] * 3000
            assert client.contains(keys, timeout_s=seconds(0.5)) == [False] * 3000
            assert now_s() - began < seconds(0.9)
        thread.join()


def answer_hello_and_read_slowly(listener: socket.socket) -> None:
    connection, _ = listener.accept()
    with connection:
        _, files, _, _ = socket.recv_fds(connection, 4096, 1)
        for file in files:
            os.close(file)
        hello = struct.pack("<II16sQIIII", 1, 0, bytes(range(16)), 7, 65536, 64 << 20, 600000, 64)
        connection.sendall(ipc.HEADER.pack(len(hello), ipc.HELLO | 0x8000, 0, 1, 0, 0, 0) + hello)
        while connection.recv(1 << 16):
            time.sleep(seconds(0.01))
