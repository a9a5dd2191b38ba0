"""TLS between daemons: both sides show certificates of one authority, and new files need no
restart.

New connections use the new files; open connections keep the old ones. If peers would refuse the new
files, the old ones stay in force, and `status` explains the problem.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import grpc

from peercached.health import Say, kinds
from peercached.peer.rpc.certificates import CertificateProblem, Credentials, Files, day, read

log = logging.getLogger(__name__)

LOOK_S = 2.0
# `status` warns this long before the expiry, or in the last fifth of a short lifetime.
WARN_BEFORE = timedelta(days=14)
WARN_FRACTION = 5


class Tls:
    """The TLS credentials in force. The constructor raises CertificateProblem if the files cannot
    be used.

    `generation` rises with each new set of credentials. server_credentials() may be called from any
    thread."""

    def __init__(self, files: Files, node_id: str, host: str) -> None:
        self._files = files
        self._node_id = node_id
        self._host = host
        self._seen = self._signature()
        self._current = read(files, node_id, host)
        self.generation = 1
        self.problem = ""
        # gRPC calls it on its own thread when a TLS handshake with a caller begins.
        self.on_connection: Callable[[], None] = lambda: None

    @staticmethod
    def load(ca: str, certificate: str, key: str, node_id: str, host: str) -> Tls | None:
        """None without files. RuntimeError with a text for people if they cannot be used."""
        if not ca:
            return None
        try:
            return Tls(Files(ca, certificate, key), node_id, host)
        except CertificateProblem as error:
            raise RuntimeError(f"TLS: {error}") from error

    @property
    def current(self) -> Credentials:
        return self._current

    def server_credentials(self) -> grpc.ServerCredentials:
        given = self.generation

        def configuration() -> Any:
            now = self._current
            return grpc.ssl_server_certificate_configuration(
                [(now.key, now.certificate)], root_certificates=now.ca
            )

        def newer() -> Any:
            nonlocal given
            self.on_connection()
            if given == self.generation:
                return None
            given = self.generation
            return configuration()

        return grpc.dynamic_ssl_server_credentials(configuration(), newer, True)

    def channel_credentials(self) -> grpc.ChannelCredentials:
        now = self._current
        return grpc.ssl_channel_credentials(now.ca, now.key, now.certificate)

    # --- rotation

    async def watch(self) -> None:
        """Checks the files every LOOK_S seconds until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(LOOK_S)
            await loop.run_in_executor(None, self.look)

    def look(self) -> bool:
        """Loads changed files; True if new ones are in force. One thread at a time."""
        signature = self._signature()
        if signature == self._seen and not self.problem:
            return False
        try:
            found = read(self._files, self._node_id, self._host)
        except CertificateProblem as error:
            if str(error) != self.problem:
                log.warning(
                    "the TLS files have changed but cannot be used: %s (the old ones stay in use)",
                    error,
                )
            self.problem = str(error)
            return False
        self._seen, self.problem = signature, ""
        if found == self._current:
            return False
        self._current = found
        self.generation += 1
        log.info("TLS: new files are in use, valid until %s", day(found.not_after))
        return True

    def _signature(self) -> tuple[tuple[int, int, int], ...]:
        found = []
        for path in (self._files.ca, self._files.certificate, self._files.key):
            try:
                status = Path(path).stat()
                found.append((status.st_ino, status.st_size, status.st_mtime_ns))
            except OSError:
                found.append((0, 0, 0))
        return tuple(found)

    # --- for people

    def document(self) -> dict[str, Any]:
        return {
            "tls": True,
            "tls_not_after": day(self._current.not_after),
            "tls_seconds_left": int((self._current.not_after - _now()).total_seconds()),
            "tls_reloads": self.generation - 1,
        }

    def say(self, say: Say) -> None:
        end = self._current.not_after
        left = end - _now()
        life = end - self._current.not_before
        if left <= timedelta(0):
            say(
                kinds.CERTIFICATE_EXPIRED,
                f"This node's TLS certificate, or its authority's, has expired ({day(end)}): "
                "peers refuse new connections.",
                "Put new files in place (peercachectl certs, or your own authority); no restart "
                "is needed.",
            )
        elif left <= min(WARN_BEFORE, life / WARN_FRACTION):
            say(
                kinds.CERTIFICATE_EXPIRES,
                f"This node's TLS certificate, or its authority's, ends {day(end)}.",
                "Put new files in place (peercachectl certs, or your own authority); no restart "
                "is needed.",
            )
        if self.problem:
            say(
                kinds.TLS_FILES_UNUSABLE,
                f"The changed TLS files cannot be used: {self.problem}. The old ones stay in use.",
                "Repair the files; the daemon checks them every few seconds.",
            )


def _now() -> datetime:
    return datetime.now(timezone.utc)
