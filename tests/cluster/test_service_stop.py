"""Start and SIGTERM under a service manager. READY comes once workers are served, and a stop hands
the pages over within its time limit."""

from __future__ import annotations

import re
import signal
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.clock import now_s, seconds
from harness.fixtures import MakeCluster
from harness.pages import keys_of
from harness.waiting import eventually

KEYS = keys_of("page", 50)


@pytest.fixture
def manager(monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    with (
        tempfile.TemporaryDirectory() as folder,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as made,
    ):
        made.bind(str(Path(folder) / "notify"))
        made.settimeout(seconds(30))
        monkeypatch.setenv("NOTIFY_SOCKET", made.getsockname())
        monkeypatch.setenv("WATCHDOG_USEC", "1000000")
        yield made


def wait_for(manager: socket.socket, what: str) -> list[str]:
    while True:
        lines = manager.recv(4096).decode().split("\n")
        if what in lines:
            return lines


def test_ready_means_that_workers_are_served(
    manager: socket.socket, make_cluster: MakeCluster
) -> None:
    cluster = make_cluster(1, start=False)
    cluster[0].start()
    status = wait_for(manager, "READY=1")[1]
    # Workers are served at once, without any further wait.
    pages = cluster[0].attach()
    assert all(pages.set(KEYS))
    assert pages.has(KEYS)
    assert status.startswith("STATUS=Serving, with 0 other nodes; pool 0% used; ")
    wait_for(manager, "WATCHDOG=1")
    cluster[0].freeze()
    manager.settimeout(2.0)
    with pytest.raises(TimeoutError):
        while True:  # drains earlier messages
            manager.recv(4096)
    cluster[0].thaw()
    wait_for(manager, "WATCHDOG=1")
    cluster[0].stop()
    assert wait_for(manager, "STOPPING=1")[2] == "EXTEND_TIMEOUT_USEC=20000000"


def test_a_node_that_is_stopped_hands_its_pages_over(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(2, stop_drain_s=20)
    assert all(cluster[1].attach().set(KEYS))
    reader = cluster[0].attach()
    assert cluster[1].stop(timeout_s=30) == 0
    cluster[0].wait_members(["a"])
    assert reader.has(KEYS)
    assert "50 of 50 pages were handed to peers" in cluster[1].log_text()


def test_handing_over_ends_with_its_time(make_cluster: MakeCluster) -> None:
    # Faults in the taker's reads make every offer slow.
    cluster = make_cluster(
        2, each=[{"faults": "seed=1,hang=1"}, {"stop_drain_s": 2}], rpc_timeout_ms=5000
    )
    assert all(cluster[1].attach().set(KEYS))
    began = now_s()
    assert cluster[1].stop(timeout_s=30) == 0
    assert now_s() - began < seconds(15)
    assert re.search(r"then the \d+ s were over", cluster[1].log_text())


def test_a_second_sigterm_ends_the_handing_over(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(
        2, each=[{"faults": "seed=1,hang=1"}, {"stop_drain_s": 600}], rpc_timeout_ms=5000
    )
    leaving = cluster[1]
    assert all(leaving.attach().set(KEYS))
    leaving._signal(signal.SIGTERM)
    eventually(lambda: "drain started: refusing sets" in leaving.log_text(), 10, "it to drain")
    began = now_s()
    assert leaving.stop(timeout_s=30) == 1
    assert now_s() - began < seconds(15)


def test_a_node_stops_while_it_waits_to_be_let_in(make_cluster: MakeCluster) -> None:
    """Such a node may be flapping, and wait up to half an hour. Or its masters are silent."""
    head, waiting = make_cluster(2, start=False, member_ttl_s=60, rpc_timeout_ms=5000).daemons
    head.start()
    head.wait_ready()
    head.freeze()
    waiting.start()
    eventually(lambda: "new view 0 with 1 members" in waiting.log_text(), 20, "it looks for others")
    assert waiting.stop(10) == 0
    assert "ready" not in waiting.log_text()
    head.thaw()
