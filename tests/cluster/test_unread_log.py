"""A standard error that nobody reads, such as the pipe of a stopped collector, holds up nothing."""

import fcntl
import os
import subprocess
import urllib.request
from collections.abc import Mapping, Sequence
from typing import IO

from harness.clock import seconds
from harness.fixtures import MakeCluster
from harness.pages import keys_of


def test_a_daemon_whose_log_nobody_reads_serves_answers_and_stops(
    make_cluster: MakeCluster,
) -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    os.write(writer, bytes(fcntl.fcntl(writer, fcntl.F_GETPIPE_SZ)))  # it is full
    os.set_blocking(writer, True)

    def spawn(
        command: Sequence[str], log: IO[bytes], environment: Mapping[str, str]
    ) -> subprocess.Popen[bytes]:
        del log
        return subprocess.Popen(command, stderr=writer, env=environment)

    cluster = make_cluster(2, start=False, log_level="debug")
    daemon = cluster[1]
    daemon.spawn = spawn
    cluster.start(30)
    assert all(daemon.attach().set(keys_of("page", 8)))
    with urllib.request.urlopen(
        f"http://{daemon.metrics_address()}/healthz", timeout=seconds(10)
    ) as answer:
        assert answer.status == 200
    assert daemon.stop(30) == 0
    os.close(reader)
    os.close(writer)
