"""A hung daemon: the client gives up in time, and after that nothing writes into its memory."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import ipc_stand_in as ipc
from harness.clock import now_s, seconds
from harness.ipc_stand_in import IpcStandIn
from harness.waiting import eventually

import peercache_client.client
from peercache_client import Client, Region, Status, notes

TESTS = Path(__file__).parents[2]
HANGS_IN_A_WRITE = """
import pathlib, sys, time
from harness.ipc_stand_in import GET, IpcStandIn
daemon = IpcStandIn(pathlib.Path(sys.argv[1]))
daemon.hang_on, daemon.writing, daemon.dies_writing = {GET}, True, True
daemon.start()
print("ready", flush=True)
input()
daemon.stop()
print("closed", flush=True)
time.sleep(600)
"""
# Prints for how long a region stays quarantined after the stream has ended.
IN_ANOTHER_CONTAINER = """
import sys, time
from peercache_client import Client
client = Client(sys.argv[1], "s", timeout_s=0.5, silence_timeout_s=0.0)
region = client.alloc(4096)
assert client.ping(timeout_s=10)
client.batch_get(["k"], region, [0], 4)
assert region.segment.quarantined
print("stuck", flush=True)
while client.ping(timeout_s=1):
    time.sleep(0.01)
began = time.monotonic()
while region.segment.quarantined:
    time.sleep(0.01)
print(time.monotonic() - began, flush=True)
"""
# Prints the status of a get of a daemon that hangs in its write, without a free descriptor.
OUT_OF_FILES = """
import os, resource, sys
from peercache_client import Client
client = Client(sys.argv[1], "s", timeout_s=0.5, silence_timeout_s=0.5)
region = client.alloc(4096)
assert all(client.batch_set(["k"], region, [0], 4, timeout_s=10))
free = os.dup(0)
os.close(free)
resource.setrlimit(resource.RLIMIT_NOFILE, (free, free))
print(client.batch_get(["k"], region, [0], 4)[0].name, flush=True)
"""


@pytest.fixture
def client(daemon: IpcStandIn) -> Iterator[Client]:
    with Client(
        daemon.path, "space", timeout_s=seconds(0.05), silence_timeout_s=seconds(0.1)
    ) as one:
        yield one


def test_a_hung_get_ends_at_its_deadline_and_writes_no_more(
    client: Client, daemon: IpcStandIn
) -> None:
    region = client.alloc(4096)
    region.view[:4] = b"page"
    assert all(client.batch_set(["k"], region, [0], 4, timeout_s=seconds(10)))
    daemon.hang_on = {ipc.GET}
    began = now_s()
    assert client.batch_get(["k"], region, [100], 4) == [Status.deadline]
    assert now_s() - began < seconds(5)
    daemon.hang_on = set()
    before = daemon.connections
    daemon.go_on.set()
    eventually(lambda: daemon.connections < before or before == 0)
    assert bytes(region.view[100:104]) == bytes(4), "it woke up, saw the fence and wrote nothing"


def test_after_a_hang_nobody_waits_until_the_daemon_answers_again(
    client: Client, daemon: IpcStandIn
) -> None:
    region = client.alloc(4096)
    daemon.hang_on = {ipc.GET}
    daemon.die_on = {ipc.HELLO}
    assert client.batch_get(["k"], region, [0], 4) == [Status.deadline]
    assert client.batch_get(["k"], region, [0], 4) == [Status.no_daemon]
    daemon.hang_on = set()
    daemon.die_on = set()
    eventually(client.ping)
    assert client.batch_get(["k"], region, [0], 4) == [Status.absent]


def test_giving_up_on_one_connection_leaves_the_others_alone(
    client: Client, daemon: IpcStandIn
) -> None:
    region = client.alloc(4096)
    region.view[:4] = b"page"
    assert all(client.batch_set(["k"], region, [0], 4, timeout_s=seconds(10)))
    got: list[Status] = []
    ready, go = threading.Event(), threading.Event()

    def other() -> None:
        client.ping(timeout_s=seconds(10))
        ready.set()
        go.wait()
        # The client probes with 5 ms timeouts until the daemon answers.
        eventually(client.ping)
        got.extend(client.batch_get(["k"], region, [200], 4, timeout_s=seconds(10)))

    thread = threading.Thread(target=other)
    thread.start()
    ready.wait()
    daemon.hang_on = {ipc.EXISTS}
    assert client.batch_exists(["k"]) == 0
    go.set()
    thread.join()
    assert got == [Status.ok]
    assert bytes(region.view[200:204]) == b"page"


def test_giving_up_does_not_wait_for_a_probe(client: Client, daemon: IpcStandIn) -> None:
    """Probes block while the daemon hangs."""
    region = client.alloc(4096)
    took_s: list[float] = []

    def get() -> None:
        client.ping(timeout_s=seconds(10))  # a connection of its own
        daemon.hang_on = {ipc.GET, ipc.EXISTS, ipc.HELLO}
        began = now_s()
        assert client.batch_get(["k"], region, [0], 4, timeout_s=seconds(0.5)) == [Status.deadline]
        took_s.append(now_s() - began)

    thread = threading.Thread(target=get)
    thread.start()
    assert daemon.hanging.wait(seconds(10))
    hellos = len(daemon.asked(ipc.HELLO))
    assert client.batch_exists(["k"]) == 0
    eventually(
        lambda: not client.ping() and len(daemon.asked(ipc.HELLO)) > hellos, what="it probes"
    )
    thread.join()
    assert took_s[0] < seconds(0.8)


def test_slow_region_registration_costs_no_more_than_the_calls_deadline(
    client: Client, daemon: IpcStandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.ping()
    daemon.hang_on = {ipc.REGISTER}
    with monkeypatch.context() as at_first:
        at_first.setattr(peercache_client.client, "_REGION_TIMEOUT_S", seconds(0.05))
        region = client.alloc(4096)

    def is_late() -> bool:
        """Retries, because a probe of the client may find within 5 ms that the daemon is silent."""
        began = now_s()
        statuses = client.batch_get(["k"], region, [0], 4, timeout_s=seconds(0.2))
        assert now_s() - began < seconds(0.6)
        return statuses == [Status.deadline]

    eventually(is_late)


def test_region_is_quarantined_until_the_write_ends(
    client: Client, daemon: IpcStandIn, caplog: pytest.LogCaptureFixture
) -> None:
    stuck, fine = client.alloc(4096), client.alloc(4096)
    fine.view[:4] = b"page"
    assert all(client.batch_set(["k"], fine, [0], 4, timeout_s=seconds(10)))
    daemon.hang_on, daemon.writing = {ipc.GET}, True
    assert client.batch_get(["k"], stuck, [0], 4) == [Status.region_lost]
    notes.flush()
    assert "the daemon hangs while it writes" in caplog.text
    daemon.hang_on, daemon.writing = set(), False
    eventually(client.ping)
    assert client.stats(timeout_s=seconds(10))["quarantined"] == 1
    assert client.batch_get(["k"], stuck, [0], 4) == [Status.region_lost]
    assert client.batch_set(["n"], stuck, [0], 4) == [Status.region_lost], "nor read from"
    assert client.batch_get(["k", "k"], [stuck, fine], [0, 8], 4, timeout_s=seconds(10)) == [
        Status.region_lost,
        Status.ok,
    ]
    daemon.go_on.set()
    eventually(lambda: client.stats()["quarantined"] == 0)
    assert client.batch_get(["k"], stuck, [0], 4, timeout_s=seconds(10)) == [Status.ok]
    assert bytes(stuck.view[:4]) == b"page"


def test_without_a_free_descriptor_a_daemon_is_not_taken_for_dead(daemon: IpcStandIn) -> None:
    daemon.hang_on, daemon.writing = {ipc.GET}, True
    command = [sys.executable, "-c", OUT_OF_FILES, str(daemon.path)]
    ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    assert ended.stdout == "region_lost\n"


@pytest.fixture
def dying(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A separate process that hangs in a write, and closes its connections on request."""
    with subprocess.Popen(
        [sys.executable, "-c", HANGS_IN_A_WRITE, tmp_path / "dying.sock"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(TESTS)},
    ) as daemon:
        assert daemon.stdout is not None and daemon.stdout.readline() == "ready\n"
        yield daemon
        daemon.kill()


@contextlib.contextmanager
def stuck_region(path: Path) -> Iterator[Region]:
    with Client(path, "s", timeout_s=seconds(0.5), silence_timeout_s=0.0) as client:
        region = client.alloc(4096)
        eventually(lambda: client.ping(timeout_s=seconds(10)))
        assert client.batch_get(["k"], region, [0], 4) == [Status.region_lost]
        assert region.segment.quarantined
        yield region


def test_quarantine_ends_with_the_daemons_process_and_not_with_its_stream(
    dying: subprocess.Popen[str], tmp_path: Path
) -> None:
    with stuck_region(tmp_path / "dying.sock") as region:
        assert dying.stdin is not None and dying.stdout is not None
        print("close", file=dying.stdin, flush=True)
        assert dying.stdout.readline() == "closed\n"
        assert region.segment.quarantined, "devices may write for it still"
        dying.kill()
        eventually(lambda: not region.segment.quarantined)


def test_quarantine_ends_when_a_daemon_dies_after_its_connection_was_closed(
    dying: subprocess.Popen[str], tmp_path: Path
) -> None:
    others = sockets()
    with stuck_region(tmp_path / "dying.sock") as region:
        for number in sockets() - others:
            os.close(number)
        assert region.segment.quarantined
        dying.kill()
        eventually(lambda: not region.segment.quarantined)


@pytest.mark.skipif(os.geteuid() != 0, reason="a process namespace needs root")
def test_quarantine_of_a_containerised_daemon_outlasts_its_stream_by_a_second(
    daemon: IpcStandIn,
) -> None:
    daemon.hang_on, daemon.writing, daemon.dies_writing = {ipc.GET}, True, True
    command = ["unshare", "--pid", "--fork", sys.executable, "-c", IN_ANOTHER_CONTAINER]
    with subprocess.Popen([*command, daemon.path], stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout is not None and worker.stdout.readline() == "stuck\n"
        daemon.stop()
        after_s = float(worker.stdout.readline())
    assert after_s >= 1


def sockets() -> set[int]:
    found = set()
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            if entry.is_socket():
                found.add(int(entry.name))
    return found


def test_get_without_silence_timeout_waits_for_the_write(
    daemon: IpcStandIn,
) -> None:
    with Client(daemon.path, "s", timeout_s=seconds(0.05), silence_timeout_s=None) as client:
        region = client.alloc(4096)
        client.ping(timeout_s=seconds(10))
        daemon.hang_on, daemon.writing = {ipc.GET}, True
        statuses: list[Status] = []
        thread = threading.Thread(
            target=lambda: statuses.extend(client.batch_get(["k"], region, [0], 4))
        )
        thread.start()
        assert daemon.hanging.wait(seconds(10))
        assert client.batch_exists(["k"]) == 0, "nobody else waits"
        thread.join(seconds(1.5))
        assert thread.is_alive()
        daemon.go_on.set()
        thread.join()
        assert statuses == [Status.deadline]
        assert not region.segment.quarantined


def test_a_handlers_exception_ends_a_get_without_silence_timeout(daemon: IpcStandIn) -> None:
    class Interrupted(Exception):
        pass

    def interrupt(*_: object) -> None:
        raise Interrupted

    daemon.hang_on, daemon.writing = {ipc.GET}, True
    with Client(daemon.path, "s", timeout_s=seconds(0.05), silence_timeout_s=None) as client:
        region = client.alloc(4096)
        client.ping(timeout_s=seconds(10))
        former = signal.signal(signal.SIGALRM, interrupt)
        late = threading.Timer(seconds(20), daemon.go_on.set)  # it would wait for ever
        late.start()
        # Handlers run when the get has waited for a second.
        signal.setitimer(signal.ITIMER_REAL, seconds(0.05) + 1.5)
        try:
            with pytest.raises(Interrupted):
                client.batch_get(["k"], region, [0], 4)
            assert not daemon.go_on.is_set() and region.segment.quarantined
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, former)
            late.cancel()
            daemon.go_on.set()


def test_buffers_go_on_through_a_new_region_after_a_stuck_write(
    client: Client, daemon: IpcStandIn
) -> None:
    assert client.set("k", b"page", timeout_s=seconds(10))
    daemon.hang_on = {ipc.GET}
    daemon.writing = True
    assert client.get("k", 4) is None
    daemon.hang_on = set()
    daemon.writing = False
    daemon.go_on.set()
    eventually(client.ping)
    assert client.get("k", 4) == b"page"


def test_every_get_tells_the_daemon_when_it_gives_up(daemon: IpcStandIn) -> None:
    with Client(daemon.path, "s", timeout_s=seconds(10), staging_bytes=4096) as client:
        region = client.alloc(4096)
        assert all(client.batch_set(["a", "b"], region, [0, 4], 4))
        assert all(client.batch_get(["a", "b"], region, [8, 12], 4, give_up_s=0.5))
        places = [region.view[8:12], region.view[12:16]]
        assert all(client.batch_get_buffers(["a", "b"], places, give_up_s=0.5))
        assert all(
            client.batch_get_buffers(["a", "b"], [bytearray(4), bytearray(4)], give_up_s=0.5)
        )
        assert client.get("a", 4, give_up_s=0.5) == bytes(4)
        assert client.get("a", give_up_s=0.5) == bytes(4)
        assert [get.deadline_ms <= 500 for get in daemon.asked(ipc.GET)] == [True] * 5
        assert client.get("a") == bytes(4)
        assert daemon.asked(ipc.GET)[-1].deadline_ms > 500
