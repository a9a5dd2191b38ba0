"""The daemon as a process: its threads by name, and what it runs on."""

from __future__ import annotations

import json
import os
import sys
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

import pytest
from harness.cluster import Cluster, Daemon
from harness.pages import keys_of

from peercached.admin.client import AdminClient


def process_by_http(daemon: Daemon, **arguments: str) -> Any:
    port = daemon.status()["node"]["metrics_port"]
    query = urllib.parse.urlencode(arguments)
    address = f"http://{daemon.host}:{port}/api/v1/process?{query}"
    with urllib.request.urlopen(address, timeout=10) as response:
        return json.load(response)


def test_process_names_threads_and_what_is_installed(three_nodes: Cluster) -> None:
    """Of this node by the admin socket, of another one by HTTP."""
    worker = three_nodes[0].attach()
    assert all(worker.set(keys_of("process", 32)))
    with AdminClient(str(three_nodes[0].admin_path)) as admin:
        document = admin.process()
    threads = {of.name: of.threads for of in document.threads}
    assert threads["worker"] >= 1
    for alone in ("evict", "janitor", "accept workers", "accept peers", "followers", "follow"):
        assert threads[alone] == 1
    assert sum(of.cpu_s for of in document.threads) > 0
    assert (document.node_id, document.pid) == ("a", three_nodes[0].pid)
    assert document.resident_bytes > 10 << 20
    assert 0 < document.open_files < document.open_files_max

    on = document.environment
    assert on.python == ".".join(map(str, sys.version_info[:3]))
    assert on.kernel == f"Linux {os.uname().release}"
    assert on.processors == len(os.sched_getaffinity(0))
    assert document.resident_bytes < on.memory_bytes
    assert {"grpcio", "protobuf"} <= on.packages.keys()
    assert on.build["version"] == three_nodes[0].status()["node"]["version"]

    assert process_by_http(three_nodes[0])["node_id"] == "a"
    assert process_by_http(three_nodes[0], node="c")["pid"] == three_nodes[2].pid
    with pytest.raises(urllib.error.HTTPError, match="502"):
        process_by_http(three_nodes[0], node="nobody")
