"""A real etcd (Debian: etcd-server) with one member, started and ended by a test."""

from __future__ import annotations

import shutil
import signal
import subprocess
from pathlib import Path

from harness.waiting import eventually
from peercached.demo.process import free_port
from peercached.peer.certificates import Files

_READY = "ready to serve client requests"


def reason_to_skip() -> str:
    """Empty if there is an etcd on this machine."""
    return "" if shutil.which("etcd") else "no etcd here: apt-get install etcd-server"


class Etcd:
    """Its data outlives stop() and kill()."""

    def __init__(self, folder: Path, tls: Files | None = None) -> None:
        """`tls`: clients come over TLS, with certificates of that authority."""
        self._folder = folder
        self._tls = tls
        self._log = folder / "etcd.log"
        self.port, self._peer_port = free_port("127.0.0.1"), free_port("127.0.0.1")
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        scheme = "http" if self._tls is None else "https"
        here, peer = f"{scheme}://{self.endpoint}", f"http://127.0.0.1:{self._peer_port}"
        said = self._log.read_text().count(_READY) if self._log.exists() else 0
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    "etcd",
                    "--name=one",
                    f"--data-dir={self._folder / 'etcd'}",
                    f"--listen-client-urls={here}",
                    f"--advertise-client-urls={here}",
                    f"--listen-peer-urls={peer}",
                    f"--initial-advertise-peer-urls={peer}",
                    f"--initial-cluster=one={peer}",
                    "--heartbeat-interval=50",
                    "--election-timeout=500",
                    *self._tls_options(),
                ],
                stdout=log,
                stderr=log,
            )
        # One that is killed before it has a leader may never have one again.
        eventually(lambda: self._log.read_text().count(_READY) > said, 30, "etcd is ready")

    def _tls_options(self) -> list[str]:
        if self._tls is None:
            return []
        return [
            "--client-cert-auth=true",
            f"--trusted-ca-file={self._tls.ca}",
            f"--cert-file={self._tls.certificate}",
            f"--key-file={self._tls.key}",
        ]

    def freeze(self) -> None:
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        if self._process is not None:
            self._signal(signal.SIGKILL)
            self._process.wait(10)
            self._process = None

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)
