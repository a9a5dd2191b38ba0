"""A real S3 server, moto's: a process that speaks S3's protocol over HTTP, with conditional puts,
ranges and ordered listings. Of the servers that can be had here it needs no build (s3s-fs) and no
cluster of its own (radosgw). rclone's (1.75) overwrites objects in spite of a condition, and
answers a range with the whole object. moto keeps objects in memory."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from harness.clock import seconds
from harness.waiting import eventually
from peercache_bench.process import free_port

BUCKET = "pages"


class S3:
    def __init__(self, folder: Path, host: str = "127.0.0.1", launcher: Sequence[str] = ()) -> None:
        """`launcher`: a command that runs it on another host, which has the address `host`."""
        self._launcher = launcher
        port = free_port("127.0.0.1")
        self.endpoint = f"http://{host}:{port}"
        command = Path(sys.executable).with_name("moto_server")
        with (folder / "s3.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*launcher, command, "-H", host, "-p", str(port)], stdout=log, stderr=log
            )
        try:
            eventually(self._has_bucket, 60, "the S3 server is ready")
        except BaseException:
            self.kill()
            raise

    def environment(self, endpoint: str = "") -> dict[str, str]:
        """Of a daemon that uses it, perhaps through a proxy."""
        return {
            "AWS_ENDPOINT_URL": endpoint or self.endpoint,
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "nobody",
            "AWS_SECRET_ACCESS_KEY": "hush-hush-secret",
        }

    def freeze(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(seconds(10))

    def _has_bucket(self) -> bool:
        """Creates it, from the server's own host."""
        create = (
            "import sys, urllib.request as http;"
            "http.urlopen(http.Request(sys.argv[1], method='PUT'), timeout=5)"
        )
        command = [*self._launcher, sys.executable, "-c", create, f"{self.endpoint}/{BUCKET}"]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0


@contextmanager
def s3_server(folder: Path, host: str = "127.0.0.1", launcher: Sequence[str] = ()) -> Iterator[S3]:
    server = S3(folder, host, launcher)
    try:
        yield server
    finally:
        server.thaw()
        server.kill()
