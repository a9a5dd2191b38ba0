"""systemd's notification protocol (sd_notify(3)): lines `NAME=value` in one datagram to the socket
named by $NOTIFY_SOCKET. Without that variable nothing is sent."""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Mapping

from peercached.error_text import reason

log = logging.getLogger(__name__)

SOCKET_VARIABLE = "NOTIFY_SOCKET"
_WATCHDOG_VARIABLE = "WATCHDOG_USEC"
_WATCHDOG_PID_VARIABLE = "WATCHDOG_PID"


class Notifier:
    """`watchdog_s`: the watchdog's time limit between pings; 0: no watchdog. Never raises or
    blocks: a message that does not fit the manager's queue is lost."""

    def __init__(self, address: str = "", watchdog_s: float = 0.0) -> None:
        self.watchdog_s = watchdog_s if address else 0.0
        # "@name" is a socket without a file.
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._failed = False

    @staticmethod
    def from_environment(environment: Mapping[str, str]) -> Notifier:
        address = environment.get(SOCKET_VARIABLE, "")
        if address and address[0] not in "/@":
            log.warning(
                "ignoring %s=%s: not a valid socket address (must begin with / or @)",
                SOCKET_VARIABLE,
                address,
            )
            address = ""
        return Notifier(address, _watchdog_s(environment))

    @property
    def heard(self) -> bool:
        """Whether there is a service manager."""
        return bool(self._address)

    def ready(self, status: str) -> None:
        """Workers are being served, or a reload is done."""
        self.send("READY=1", f"STATUS={_line(status)}")

    def status(self, status: str) -> None:
        self.send(f"STATUS={_line(status)}")

    def reloading(self) -> None:
        """A reload has begun. Call ready() at its end."""
        now_us = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        self.send("RELOADING=1", f"MONOTONIC_USEC={now_us}")

    def stopping(self, at_most_s: float) -> None:
        """The daemon is stopping. `at_most_s`: how long that may take from now."""
        self.send(
            "STOPPING=1", "STATUS=Stopping.", f"EXTEND_TIMEOUT_USEC={round(at_most_s * 1_000_000)}"
        )

    def alive(self) -> None:
        self.send("WATCHDOG=1")

    def send(self, *lines: str) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as out:
                out.setblocking(False)
                out.sendto("\n".join(lines).encode(), self._address)
            self._failed = False
        except OSError as error:
            if not self._failed:
                log.warning("cannot send %s to the service manager: %s", lines[0], reason(error))
            self._failed = True


def _watchdog_s(environment: Mapping[str, str]) -> float:
    """The watchdog's time in seconds; 0 if it is not meant for this process."""
    try:
        if int(environment.get(_WATCHDOG_PID_VARIABLE, os.getpid())) != os.getpid():
            return 0.0
        return max(int(environment.get(_WATCHDOG_VARIABLE, "0")), 0) / 1_000_000
    except ValueError:
        return 0.0


def _line(text: str) -> str:
    return " ".join(text.split())
