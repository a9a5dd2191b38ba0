"""Floods and silent connections at every socket of a node, while a reader there misses nothing."""

import os
import re
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from harness.clock import seconds
from harness.cluster import Cluster, Daemon
from harness.fixtures import MakeCluster
from harness.pages import Pages, keys_of
from harness.waiting import eventually

KEYS = keys_of("beside a flood", 32)


@contextmanager
def reading(reader: Pages) -> Iterator[None]:
    """Reads these pages over and over in the background. Every read must hit."""
    stop = threading.Event()
    rounds: list[int] = []

    def read() -> None:
        while not stop.is_set():
            rounds.append(sum(map(bool, reader.get(KEYS))))

    thread = threading.Thread(target=read)
    thread.start()
    eventually(lambda: rounds)
    yield
    before = len(rounds)
    eventually(lambda: len(rounds) > before + 3)
    stop.set()
    thread.join()
    assert set(rounds) == {len(KEYS)}


def flood(host: str, port: int, count: int, stack: ExitStack) -> None:
    for _ in range(count):
        stack.enter_context(socket.create_connection((host, port), timeout=seconds(5)))


def part(daemon: Daemon, name: str) -> dict[str, Any]:
    found: dict[str, Any] = daemon.status()[name]
    return found


@pytest.fixture
def pair(make_cluster: MakeCluster) -> Cluster:
    nodes = make_cluster(2)
    assert all(nodes[0].attach().set(KEYS))
    assert nodes[1].attach().has(KEYS)
    return nodes


def test_a_flood_of_the_data_port_costs_the_readers_nothing(pair: Cluster) -> None:
    holder = pair[0]
    with ExitStack() as stack, reading(pair[1].attach()):
        flood(holder.host, holder.data_port, 300, stack)
        eventually(lambda: part(holder, "tcp_server")["crowded"] >= 300 - 64)
        eventually(lambda: part(holder, "tcp_server")["late_hellos"] >= 64)
        assert part(holder, "tcp_server")["accepted"] > 0
    eventually(lambda: "refused a connection to data_port from 127.0.0.1" in holder.log_text())
    eventually(lambda: "no complete hello within" in holder.log_text())


def test_a_flood_of_the_meta_port_costs_the_readers_nothing(pair: Cluster) -> None:
    holder = pair[0]
    with ExitStack() as stack, reading(pair[1].attach()):
        flood(holder.host, holder.meta_port, 300, stack)
        eventually(lambda: part(holder, "security")["meta_shut_crowd"] >= 300 - 33)
        eventually(lambda: part(holder, "security")["meta_connections_unproven"] == 0, 20)
        late = pair[0].attach()
        assert late.has(KEYS)
    closed = r"closed \d+ connections to meta_port from 127\.0\.0\.1: too many unauthenticated"
    assert re.search(closed, holder.log_text())
    for node in pair.daemons:
        assert not node.suspects()


_KNOCKER = """
import socket, sys
open_ = []
for _ in range(int(sys.argv[2])):
    one = socket.socket(socket.AF_UNIX)
    one.connect(sys.argv[1])
    open_.append(one)
print("all", flush=True)
sys.stdin.read()
"""


def knocker(path: str, count: int, as_user: int | None = None) -> "subprocess.Popen[bytes]":
    options: dict[str, Any] = {} if as_user is None else {"user": as_user, "group": as_user}
    if as_user is not None:
        options["extra_groups"] = []
    return subprocess.Popen(
        [sys.executable, "-c", _KNOCKER, path, str(count)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        **options,
    )


def test_a_process_that_floods_the_workers_socket_keeps_no_worker_out(pair: Cluster) -> None:
    node = pair[1]
    with reading(node.attach()), knocker(str(node.socket_path), 400) as process:
        eventually(lambda: part(node, "ipc")["crowded"] >= 400 - 128)
        assert node.attach().has(KEYS)  # a new worker gets in
        eventually(lambda: part(node, "ipc")["late_hellos"] >= 128, 20)
        process.kill()
    eventually(lambda: f"refused a worker: process {process.pid} of user" in node.log_text())
    eventually(lambda: "sent no HELLO" in node.log_text())
    assert "too many from one process" in node.sentences()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be another user")
def test_a_worker_of_another_user_is_refused_with_its_name(make_cluster: MakeCluster) -> None:
    nodes = make_cluster(1, socket_mode="0666", worker_users="12345")
    nodes.folder.chmod(0o755)
    # The process drops its rights itself, because another user may have no access to this folder.
    hello = """
import os, socket, sys
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
one = socket.socket(socket.AF_UNIX)
one.connect(sys.argv[1])
sys.stdout.buffer.write(one.recv(4096))
"""
    refused = subprocess.run(
        [sys.executable, "-c", hello, str(nodes[0].socket_path)],
        capture_output=True,
        timeout=seconds(20),
        check=True,
    ).stdout
    assert struct.unpack_from("<H", refused, 6) == (9,)  # forbidden
    assert b"of user 65534" in refused
    assert part(nodes[0], "ipc")["forbidden"] == 1
    eventually(lambda: "is neither in worker_users nor in worker_groups" in nodes[0].log_text())
    own = nodes[0].attach()
    assert all(own.set(KEYS))
    assert own.has(KEYS)


def test_accounts_that_do_not_exist_are_a_bad_configuration(make_cluster: MakeCluster) -> None:
    nodes = make_cluster(1, start=False, worker_groups="no-such-group-here")
    nodes[0].start()
    assert nodes[0].wait_exit(30) == 2
    assert "there is no such group" in nodes[0].log_text()
