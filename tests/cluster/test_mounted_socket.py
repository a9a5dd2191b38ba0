"""A container that mounts the socket file keeps the file of the daemon that ran then."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from harness.fixtures import MakeCluster

READS = """
import logging, sys
logging.basicConfig(format="%(message)s")
from peercache_client import Client
with Client(sys.argv[1], "test") as client:
    client.contains([b"key"])
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")
def test_a_worker_is_told_to_mount_the_folder(make_cluster: MakeCluster) -> None:
    daemon = make_cluster(1)[0]
    path = str(daemon.socket_path)
    stale, there = path + ".stale", path + ".there"
    os.link(path, stale)
    daemon.stop()
    daemon.start()
    daemon.wait_ready()
    script = f'touch {there} && mount --bind {stale} {there} && exec "$0" -c "$1" {there}'
    mounted = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script, sys.executable, READS],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    if "unshare" in mounted.stderr or "mount:" in mounted.stderr:
        pytest.skip(f"no mounts here: {mounted.stderr}")
    assert "Connection refused" in mounted.stderr
    assert "mount the folder of the socket" in mounted.stderr
