"""Floods and silent connections at every socket of a node, while a reader there misses nothing."""

import subprocess
import sys

from harness.fixtures import MakeCluster
from harness.pages import keys_of
from harness.steady_reader import SteadyReader
from harness.waiting import eventually

KEYS = keys_of("beside a flood", 32)


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


def knocker(path: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, "-c", _KNOCKER, path, "400"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )


def test_a_process_that_floods_the_workers_socket_keeps_no_worker_out(
    make_cluster: MakeCluster,
) -> None:
    holder, node = make_cluster(2).daemons
    assert all(holder.attach().set(KEYS))
    with SteadyReader(node.attach(), KEYS) as reading, knocker(str(node.socket_path)) as process:
        eventually(lambda: node.status()["ipc"]["crowded"] >= 400 - 128)
        assert node.attach().has(KEYS)  # a new worker gets in
        eventually(lambda: node.status()["ipc"]["late_hellos"] >= 128, 20)
        process.kill()
        reading.check_whole("the flood", rounds=3)
    eventually(lambda: f"refused a worker: process {process.pid} of user" in node.log_text())
    eventually(lambda: "sent no HELLO" in node.log_text())
    assert "too many from one process" in node.sentences()


def test_accounts_that_do_not_exist_are_a_bad_configuration(make_cluster: MakeCluster) -> None:
    nodes = make_cluster(1, start=False, worker_groups="no-such-group-here")
    nodes[0].start()
    assert nodes[0].wait_exit(30) == 2
    assert "there is no such group" in nodes[0].log_text()
