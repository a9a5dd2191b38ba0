"""TLS between daemons: both sides show certificates of one authority, and new files need no
restart.

New connections use the new files; open connections keep the old ones. If peers would refuse the new
files, the old ones stay in force, and `status` explains the problem.
"""

from __future__ import annotations

import logging
from datetime import datetime, timedelta, timezone
from typing import Any

import grpc

from peercached.health import Say, kinds
from peercached.peer.rpc.certificates import CertificateProblem, Credentials, Files, day, read
from peercached.peer.rpc.watched_files import WatchedFiles

log = logging.getLogger(__name__)

# `status` warns this long before the expiry, or in the last fifth of a short lifetime.
WARN_BEFORE = timedelta(days=14)
WARN_FRACTION = 5
_REMEDY = (
    "Put new files in place (peercachectl certs, or your own authority); no restart is needed."
)


class Tls:
    """The TLS credentials in force. The constructor raises CertificateProblem if the files cannot
    be used.

    `generation` rises with each new set of credentials. Both may be read from any thread."""

    def __init__(self, files: Files, node_id: str, host: str, mode: str = "require") -> None:
        paths = (files.ca, files.certificate, files.key)
        self._files = WatchedFiles("the TLS files", paths, lambda: read(files, node_id, host))
        self.mode = mode  # the key tls_mode; a reload changes it

    @staticmethod
    def load(
        ca: str, certificate: str, key: str, node_id: str, host: str, mode: str = "require"
    ) -> Tls | None:
        """None without files. RuntimeError with a text for people if they cannot be used."""
        if not ca:
            return None
        try:
            return Tls(Files(ca, certificate, key), node_id, host, mode)
        except CertificateProblem as error:
            raise RuntimeError(f"TLS: {error}") from error

    # --- how far it is switched on

    @property
    def serves(self) -> bool:
        """Whether this node's port speaks TLS; else it is plain."""
        return self.mode in ("prefer", "require")

    @property
    def calls(self) -> bool:
        """Whether this node calls peers with TLS."""
        return self.mode != "off"

    @property
    def calls_plain(self) -> bool:
        """Whether this node calls peers without TLS."""
        return self.mode != "require"

    @property
    def current(self) -> Credentials:
        return self._files.current

    @property
    def generation(self) -> int:
        return self._files.generation

    def channel_credentials(self) -> grpc.ChannelCredentials:
        now = self.current
        return grpc.ssl_channel_credentials(now.ca, now.key, now.certificate)

    # --- rotation

    async def watch(self) -> None:
        """Takes up new files until cancelled."""
        async for new in self._files.changes():
            log.info("TLS: new files are in use, valid until %s", day(new.not_after))

    def look(self) -> bool:
        """Loads changed files; True if new ones are in force."""
        return self._files.look()

    # --- for people

    def document(self) -> dict[str, Any]:
        return {
            "tls": self.calls,
            "tls_mode": self.mode,
            "tls_not_after": day(self.current.not_after),
            "tls_seconds_left": int((self.current.not_after - _now()).total_seconds()),
            "tls_reloads": self.generation - 1,
        }

    def say(self, say: Say) -> None:
        end = self.current.not_after
        left = end - _now()
        life = end - self.current.not_before
        if left <= timedelta(0):
            say(
                kinds.CERTIFICATE_EXPIRED,
                f"This node's TLS certificate, or its authority's, has expired ({day(end)}): "
                "peers refuse new connections.",
                _REMEDY,
            )
        elif left <= min(WARN_BEFORE, life / WARN_FRACTION):
            say(
                kinds.CERTIFICATE_EXPIRES,
                f"This node's TLS certificate, or its authority's, ends {day(end)}.",
                _REMEDY,
            )
        if self._files.problem:
            say(
                kinds.TLS_FILES_UNUSABLE,
                f"The changed TLS files cannot be used: {self._files.problem}. The old "
                "ones stay in use.",
                "Repair the files; the daemon checks them every few seconds.",
            )


def _now() -> datetime:
    return datetime.now(timezone.utc)
