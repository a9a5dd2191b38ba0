"""SIGTERM ends the daemon in time under every kind of open client."""

import contextlib
import http.client
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from harness.clock import now_s, seconds
from harness.cluster import Daemon
from harness.fixtures import MakeCluster
from harness.pages import keys_of
from harness.raw_worker import GET, HEADER, RawWorker
from harness.waiting import eventually

from peercache_client import Client
from peercached.admin.client import AdminClient, Refused, Unreachable

KEYS = keys_of("page", 8)
PAGE_BYTES = 4 << 20
ERRORS = (OSError, http.client.HTTPException, Refused, Unreachable)


@contextlib.contextmanager
def repeated(call: Callable[[], object]) -> Iterator[None]:
    """Calls it again and again on a thread, until it fails or the block ends."""
    over = threading.Event()

    def work() -> None:
        with contextlib.suppress(*ERRORS):
            while not over.is_set():
                call()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    yield
    over.set()
    thread.join(seconds(30))
    assert not thread.is_alive(), "a client hangs although the daemon has ended"


@contextlib.contextmanager
def dashboards(daemon: Daemon) -> Iterator[None]:
    """Tabs that ask all the time, and connections in every state of a request."""
    host, _, port = daemon.metrics_address().rpartition(":")
    with ExitStack() as stack:
        for words in (b"", b"GET /he", b"POST /api/v1/prefix HTTP/1.1\r\nHost: localhost\r\n"):
            sock = stack.enter_context(socket.create_connection((host, int(port))))
            sock.sendall(words)
        for _ in range(4):
            tab = http.client.HTTPConnection(host, int(port), timeout=seconds(20))
            stack.callback(tab.close)

            def ask(tab: http.client.HTTPConnection = tab) -> None:
                tab.request("GET", "/api/v1/status")
                tab.getresponse().read()

            stack.enter_context(repeated(ask))
        yield


@contextlib.contextmanager
def strangers(daemon: Daemon) -> Iterator[None]:
    with ExitStack() as stack:
        for port in (daemon.meta_port, daemon.data_port):
            stack.enter_context(socket.create_connection((daemon.host, port)))
        yield


@contextlib.contextmanager
def workers(daemon: Daemon) -> Iterator[None]:
    """One is silent, one is in the middle of a frame, one reads from a peer that is frozen."""
    with ExitStack() as stack:
        stack.enter_context(RawWorker(daemon.socket_path))
        stack.enter_context(RawWorker(daemon.socket_path)).send(HEADER.pack(99, GET, 0, 1, 1, 9, 0))
        client = stack.enter_context(
            Client(str(daemon.socket_path), "test", timeout_s=seconds(30), silence_timeout_s=None)
        )
        region = client.alloc(PAGE_BYTES)

        def read() -> None:
            client.batch_get(KEYS[:1], region, [0], [PAGE_BYTES])

        stack.enter_context(repeated(read))
        yield


@contextlib.contextmanager
def operators(daemon: Daemon, other: Daemon) -> Iterator[None]:
    """`events -f`, and a call that waits for a frozen member."""
    with ExitStack() as stack:
        for node, ask in (("", AdminClient.events), (other.node_id, AdminClient.status)):
            admin = AdminClient(str(daemon.admin_path), seconds(30), node=node)
            stack.enter_context(admin)
            stack.enter_context(repeated(lambda ask=ask, admin=admin: ask(admin)))  # type: ignore[misc]
        yield


@contextlib.contextmanager
def frozen_reader(daemon: Daemon, other: Daemon) -> Iterator[None]:
    """A peer that stops in the middle of a read of this daemon's pages."""
    with Client(str(other.socket_path), "test", timeout_s=seconds(30)) as client:
        region = client.alloc(PAGE_BYTES * len(KEYS))
        sizes = [PAGE_BYTES] * len(KEYS)
        offsets = [PAGE_BYTES * place for place in range(len(KEYS))]
        client.batch_set(KEYS[:1], region, [0], sizes[:1])  # for the daemon's own workers
        threading.Thread(
            target=lambda: client.batch_get(keys_of("own", 8), region, offsets, sizes), daemon=True
        ).start()
        other.freeze()
        try:
            yield
        finally:
            other.thaw()


@pytest.mark.parametrize("hand_over_s", [0, 3])
def test_the_daemon_stops_under_every_kind_of_open_client(
    make_cluster: MakeCluster, hand_over_s: int
) -> None:
    daemon, other = make_cluster(2, stop_drain_s=hand_over_s, member_ttl_s=30).daemons
    with Client(str(daemon.socket_path), "test", timeout_s=seconds(30)) as client:
        region = client.alloc(PAGE_BYTES)
        for key in keys_of("own", 8):
            assert all(client.batch_set([key], region, [0], [PAGE_BYTES]))
    with ExitStack() as open_clients:
        open_clients.enter_context(frozen_reader(daemon, other))
        for kind in (dashboards(daemon), strangers(daemon), workers(daemon)):
            open_clients.enter_context(kind)
        open_clients.enter_context(operators(daemon, other))
        began = now_s()
        assert daemon.stop(timeout_s=60) == 0, daemon.log_tail()
        assert now_s() - began < seconds(15 + hand_over_s), daemon.log_tail()
        eventually(lambda: daemon.log_text().rstrip().endswith("stopped"))
        assert "gave up on" not in daemon.log_text()
