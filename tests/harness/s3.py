"""A real S3 server, moto's: a process that speaks S3's protocol over HTTP, with conditional puts,
ranges and ordered listings. Of the servers that can be had here it needs no build (s3s-fs) and no
cluster of its own (radosgw). It keeps objects in memory."""

from __future__ import annotations

import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError

from harness.clock import seconds
from harness.waiting import eventually
from peercache_bench.process import free_port

BUCKET = "pages"


class S3:
    def __init__(self, folder: Path) -> None:
        self.port = free_port("127.0.0.1")
        command = Path(sys.executable).with_name("moto_server")
        with (folder / "s3.log").open("ab") as log:
            self._process = subprocess.Popen(
                [command, "-H", "127.0.0.1", "-p", str(self.port)], stdout=log, stderr=log
            )
        eventually(self._has_bucket, 60, "the S3 server is ready")

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        """Of a daemon that uses it."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
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
        request = urllib.request.Request(f"{self.endpoint}/{BUCKET}", method="PUT")
        try:
            with urllib.request.urlopen(request, timeout=5) as answer:
                return bool(answer.status == 200)
        except (URLError, OSError):
            return False


@contextmanager
def s3_server(folder: Path) -> Iterator[S3]:
    server = S3(folder)
    try:
        yield server
    finally:
        server.thaw()
        server.kill()
