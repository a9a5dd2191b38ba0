"""A node has died, and something else listens at its address. Removals do not wait for the node."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
from harness.clock import seconds
from harness.cluster import Daemon
from harness.fixtures import MakeCluster
from harness.pages import keys_of
from harness.secret_file import secret_file
from harness.versions import Versions

from peercache_client import Status
from peercached.admin.client import AdminClient, Refused

KEYS = keys_of("taken", 4)


class Silent(socketserver.BaseRequestHandler):
    """Like a daemon that is frozen."""

    def handle(self) -> None:
        while self.request.recv(1 << 16):
            pass


class Greets(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        self.request.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")


class Echoes(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        while data := self.request.recv(1 << 16):
            self.request.sendall(data)


@contextmanager
def program(
    handler: type[socketserver.BaseRequestHandler], dead: Daemon, _: Path
) -> Iterator[None]:
    socketserver.ThreadingTCPServer.allow_reuse_address = True
    with socketserver.ThreadingTCPServer((dead.host, dead.meta_port), handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield
        finally:
            server.shutdown()


@contextmanager
def daemon_of_another_cluster(dead: Daemon, folder: Path) -> Iterator[None]:
    secret = secret_file(folder, b"of another cluster, 32 characters\n")
    other = Daemon(
        folder,
        node_id="other",
        host=dead.host,
        meta_port=dead.meta_port,
        heads=[dead.address],
        options={"cluster-secret-file": secret},
    )
    other.start()
    other.wait_members(["other"])
    try:
        yield
    finally:
        other.clean_up()


Taker = Callable[[Daemon, Path], AbstractContextManager[None]]


def takes(handler: type[socketserver.BaseRequestHandler]) -> Taker:
    return lambda dead, folder: program(handler, dead, folder)


@pytest.mark.parametrize(
    "taker",
    [
        pytest.param(takes(BaseHTTPRequestHandler), id="web server", marks=pytest.mark.slow),
        pytest.param(takes(Greets), id="ssh"),
        pytest.param(takes(Echoes), id="echo", marks=pytest.mark.slow),
        pytest.param(daemon_of_another_cluster, id="daemon"),
    ],
)
def test_no_removal_waits_for_a_node_whose_address_something_else_has(
    make_cluster: MakeCluster, tmp_path: Path, taker: Taker
) -> None:
    a, b, c = make_cluster(3).daemons
    b.kill()
    with taker(b, tmp_path), Versions(a.socket_path) as worker:
        for member in (a, c):
            member.wait_members(["a", "c"])
        assert "a peer with TLS does that" not in a.log_text() + c.log_text(), "b has died"
        assert all(worker.set(KEYS, 1))
        worker.remove_surely(KEYS)


@pytest.mark.parametrize("keeps_key", [True, False])
def test_a_removal_waits_for_a_node_at_whose_address_something_is_silent(
    make_cluster: MakeCluster, tmp_path: Path, keeps_key: bool
) -> None:
    """Until the node starts again, elsewhere. Another node with its name proves nothing."""
    cluster = make_cluster(3)
    a, b, c = cluster.daemons
    b.kill()
    with program(Silent, b, tmp_path), Versions(a.socket_path, timeout_s=seconds(3.0)) as worker:
        for member in (a, c):
            member.wait_members(["a", "c"])
        assert set(worker.remove(KEYS)) == {Status.removing}
        refused = pytest.raises(Refused, match="still takes connections")
        with AdminClient(str(a.admin_path)) as admin, refused:
            admin.forget_node("b")
        b.host = "127.0.0.77"
        if not keeps_key:
            (b.state_dir / "identity-b.key").unlink()
        cluster.start_again(b)
        if not keeps_key:
            assert set(worker.remove(KEYS)) == {Status.removing}
            return
        worker.remove_surely(KEYS)
