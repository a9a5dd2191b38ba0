"""Every node remembers who left, when and why, and what else happened."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import time
from pathlib import Path

from harness.cluster import Daemon
from harness.ctl import ctl
from harness.fixtures import MakeCluster
from harness.waiting import eventually

from peercached.admin.client import AdminClient
from peercached.admin.events import Event


def events(daemon: Daemon) -> list[Event]:
    with AdminClient(str(daemon.admin_path), 10.0) as admin:
        return admin.events().events


def kinds(daemon: Daemon, about: str) -> list[str]:
    return [event.kind for event in events(daemon) if event.node_id == about]


def resident_bytes(daemon: Daemon) -> int:
    pages = Path(f"/proc/{daemon.pid}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def test_a_killed_node_is_remembered_by_all_until_it_is_back(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(3)
    began = time.time()
    cluster[2].kill()
    for survivor in (cluster[0], cluster[1]):
        eventually(lambda: "node_lost" in survivor.codes(), 30)  # noqa: B023
        [gone] = survivor.status()["departed"]
        assert (gone["node_id"], gone["lost"]) == ("c", True)
        assert began <= gone["at"] <= time.time()
        assert kinds(survivor, "c")[-1] == "lost"
        assert "c at 127.0.0.3 is gone for" in ctl(survivor, "nodes").output
        assert "c at 127.0.0.3 is gone: it did not" in ctl(survivor, "doctor").output
        assert " lost " in ctl(survivor, "events").output
    assert cluster[1].stop() == 0
    cluster[1].start()
    cluster[1].wait_ready()
    assert [gone["node_id"] for gone in cluster[1].status()["departed"]] == ["c"]
    assert "lost" in kinds(cluster[1], "c"), "it remembers what an earlier start saw"
    cluster.start_again(cluster[2])
    for survivor in (cluster[0], cluster[1]):
        eventually(lambda: "node_lost" not in survivor.codes(), 30)  # noqa: B023
        assert survivor.status()["departed"] == []
        assert kinds(survivor, "c")[-1] == "restarted"


def test_a_node_that_was_stopped_has_left_and_nobody_warns(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(2)
    assert cluster[1].stop() == 0
    eventually(lambda: kinds(cluster[0], "b")[-1:] == ["left"], 30)
    assert "node_lost" not in cluster[0].codes()
    assert [gone["lost"] for gone in cluster[0].status()["departed"]] == [False]


def test_an_operator_forgets_a_lost_node_on_all_nodes(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(3)
    cluster[2].kill()
    for survivor in (cluster[0], cluster[1]):
        eventually(lambda: "node_lost" in survivor.codes(), 30)  # noqa: B023
    assert "Forgot 'c' on all nodes." in ctl(cluster[0], "forget", "c", "--yes").output
    for survivor in (cluster[0], cluster[1]):
        assert survivor.status()["departed"] == []
        assert kinds(survivor, "c")[-1] == "forget"


def test_kill_9_keeps_the_history_and_a_damaged_file_loses_nothing_else(
    make_cluster: MakeCluster,
) -> None:
    cluster = make_cluster(2)
    node = cluster[0]
    file = node.state_dir / "history-a.json"
    ctl(node, "clear", "-n", "tenant", "--yes")
    cleared = node.status()["epochs"]
    eventually(lambda: file.exists() and '"clear"' in file.read_text(), 30, "within seconds")
    node.kill()
    cluster.start_again(node)
    assert kinds(node, "a").count("started") == 2
    assert "clear" in kinds(node, "a")

    for damage in ("[" * 100_000, '{"format": 9, "of": "a newer version"}'):
        node.kill()
        file.write_text(damage)
        cluster.start_again(node)
        assert "earlier events and lost nodes are not shown" in node.log_text()
        assert "clear" not in kinds(node, "a")
        assert node.status()["epochs"] == cleared, "the file of epochs is another one"
        eventually(lambda: '"started"' in file.read_text(), 30, "it is a good file again")
    assert "it has format 9, and this version reads 1" in node.log_text()


def test_findings_and_clears_are_events(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(2)
    ctl(cluster[0], "clear", "-n", "some tenant's salt", "--yes")
    cluster[1].freeze()
    eventually(lambda: "b at" in str([e.text for e in events(cluster[0])]), 30)
    cluster[1].thaw()
    texts = [f"{event.kind}: {event.text}" for event in events(cluster[0])]
    assert any(text.startswith("clear: An operator cleared the namespace") for text in texts)
    assert "salt" not in str(texts)
    assert any(text.startswith("finding: b at 127.0.0.2") for text in texts)


def test_a_follower_whose_output_nobody_reads_holds_up_nothing(make_cluster: MakeCluster) -> None:
    (daemon,) = make_cluster(1).daemons
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    os.write(writer, bytes(fcntl.fcntl(writer, fcntl.F_GETPIPE_SZ)))  # it is full
    os.set_blocking(writer, True)
    command = [sys.executable, "-m", "peercached.cli.ctl", "events", "-f", "--socket"]
    ctl(daemon, "clear", "-n", "to say", "--yes")
    follower = subprocess.Popen([*command, str(daemon.socket_path)], stdout=writer)
    try:
        call = Path(f"/proc/{follower.pid}/syscall")
        eventually(lambda: call.read_text().split()[1:2] == ["0x1"], 30)  # it writes there
        before = resident_bytes(daemon)
        for number in range(100):
            ctl(daemon, "clear", "-n", f"space {number}", "--yes")
        assert kinds(daemon, "a").count("clear") == 101
        assert resident_bytes(daemon) - before < 64 << 20
        assert daemon.stop(30) == 0
        assert follower.poll() is None
    finally:
        follower.kill()
        follower.wait()
    os.close(reader)
    os.close(writer)
