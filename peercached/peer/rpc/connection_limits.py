"""Limits on unauthenticated connections to a gRPC port.

gRPC accepts every connection, keeps silent ones open, and does not report failed TLS handshakes. So
the daemon scans its own sockets. It shuts connections that do not authenticate in time. If there
are too many, from one address or in all, it shuts the oldest: a real peer authenticates within
milliseconds. It counts connections that sent something and ended without a call. It
reports a connection that sent nothing, such as a load balancer's health check, only if it had to
shut it. If a peer has authenticated from an address, spare connections from there are no
stranger's: nobody is warned of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import stat
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass
from urllib.parse import unquote

from peercached.peer.rpc.tls import Tls

log = logging.getLogger(__name__)

LOOK_S = 1.0
# TLS handshakes trigger a look at most this often, so that a flood cannot cost much CPU.
LOOK_SOONEST_S = 0.05
PROOF_S = 10.0
# A shorter one is a port scan, not worth a warning. gRPC itself ends one that does not become
# HTTP/2 after 5 s.
HELD_S = 3.0
_TCP_INFO_BYTES = 136
_BYTES_RECEIVED_AT = 128  # in struct tcp_info; a FIN counts as a byte
# After a look that came so late, this process did not run meanwhile. Peers gave up the connections
# that it had not answered, so for as long no ended connection counts as a stranger's.
LATE_S = 5.0
UNPROVEN_PER_HOST_MAX = 32
UNPROVEN_MAX = 1024


@dataclass(slots=True)
class _Connection:
    peer: str  # as gRPC's context.peer() has it
    host: str
    since: float
    fd: int
    proven: bool = False
    sent: bool = False  # anything at all
    spoke: bool = False  # made a call, perhaps a refused one
    shut: bool = False


def host_of(peer: str) -> str:
    """The address in `ipv4:10.0.0.1:1234` or `ipv6:%5B::1%5D:1234`. gRPC says `unknown` if the
    connection ended before it asked."""
    return unquote(peer).partition(":")[2].rpartition(":")[0].strip("[]") or "an ended connection"


class ConnectionLimits:
    """Call proven() and spoke() on the event loop, look() from any thread."""

    def __init__(self, tls: Tls | None, door: str = "meta_port") -> None:
        """`door`: the key of the port."""
        self._tls = tls
        self._door = door
        self._port = 0
        self._lock = threading.Lock()
        self._by_inode: dict[int, _Connection] = {}
        self._by_peer: dict[str, _Connection] = {}
        self._others: set[int] = set()  # inodes of sockets that do not belong to the port
        # Peers that called before a look found their connection: whether they authenticated.
        self._early: dict[str, bool] = {}
        self._looked_at = 0.0
        self._late_until = 0.0
        self.shut_unproven = 0
        self.shut_crowd = 0
        self.shut_strangers = 0  # of both, those that no member made
        self.silent = 0

    # --- reports from calls

    def proven(self, peer: str) -> None:
        self._note(peer, True)

    def spoke(self, peer: str) -> None:
        self._note(peer, False)

    def _note(self, peer: str, proven: bool) -> None:
        found = self._by_peer.get(peer)
        if found is None:
            with self._lock:
                found = self._by_peer.get(peer)  # a look may have just entered it
                if found is None:
                    if len(self._early) < UNPROVEN_MAX:
                        self._early[peer] = proven or self._early.get(peer, False)
                    return
        found.spoke = True
        found.proven = found.proven or proven

    # --- scans

    async def watch(self, port: int) -> None:
        self._port = port
        self._looked_at = time.monotonic()
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(LOOK_S)
            await loop.run_in_executor(None, self.look)

    def new_connection(self) -> None:
        """A TLS handshake begins. It may fail, and its socket vanish, before the next look."""
        if self._port and time.monotonic() - self._looked_at >= LOOK_SOONEST_S:
            self.look()

    def look(self) -> None:
        with self._lock:
            now = time.monotonic()
            if self._looked_at and now - self._looked_at > LATE_S:
                self._late_until = now + LATE_S
            self._looked_at = now
            live, is_all = self._live(now)
            for inode in [inode for inode in self._by_inode if inode not in live]:
                self._gone(self._by_inode.pop(inode), now)
            if is_all:
                self._early.clear()
            self._shut_those_that_must_go(now)

    def _live(self, now: float) -> tuple[set[int], bool]:
        """Enters new connections of the port. Returns the inodes of all, and whether it could
        tell of each socket whether it is one."""
        live, others, is_all = set(), set(), True
        for entry in os.scandir("/proc/self/fd"):
            fd = int(entry.name)
            try:
                status = os.fstat(fd)
            except OSError:
                continue  # closed meanwhile
            if not stat.S_ISSOCK(status.st_mode):
                continue
            inode = status.st_ino
            known = self._by_inode.get(inode)
            if known is not None:
                known.fd = fd
                known.sent = known.sent or _has_sent(fd, inode)
                live.add(inode)
            elif inode in self._others or (is_ours := self._enter(fd, inode, now)) is False:
                others.add(inode)
            elif is_ours:
                live.add(inode)
            else:
                is_all = False
        self._others = others
        return live, is_all

    def _enter(self, fd: int, inode: int, now: float) -> bool | None:
        """Whether it is a connection of the port; None: the next look tells."""
        taken = _take(fd, inode)
        if taken is None:
            return None
        with taken:
            if taken.family not in (socket.AF_INET, socket.AF_INET6):
                return False
            try:
                if taken.getsockname()[1] != self._port:
                    return False
                host, port = taken.getpeername()[:2]
            except OSError:
                return False  # the listener, or closed meanwhile
        # gRPC's dual-stack socket shows IPv4 callers as ::ffff:a.b.c.d; context.peer() does not.
        host = host.removeprefix("::ffff:")
        peer = f"ipv6:%5B{host}%5D:{port}" if ":" in host else f"ipv4:{host}:{port}"
        found = _Connection(peer, host, now, fd, sent=_has_sent(fd, inode))
        if peer in self._early:
            found.spoke, found.proven = True, self._early[peer]
        self._by_inode[inode] = found
        self._by_peer[peer] = found
        return True

    def _gone(self, connection: _Connection, now: float) -> None:
        if self._by_peer.get(connection.peer) is connection:
            del self._by_peer[connection.peer]
        if connection.spoke or connection.shut or connection.peer in self._early:
            return
        if connection.since <= self._late_until:
            log.debug("a connection to %s from %s was given up", self._door, connection.host)
            return
        if not connection.sent:
            log.debug("a connection to %s from %s said nothing", self._door, connection.host)
            return
        self.silent += 1
        if self._tls is not None and self._tls.serves:
            log.warning(
                "a connection to %s from %s ended before its first call: most likely it showed no "
                "certificate, or one that is expired or that tls_ca has not signed",
                self._door,
                connection.host,
            )
        elif now - connection.since >= HELD_S and connection.host not in self._peers():
            log.warning(
                "a connection to %s from %s ended after %.0f s without a call",
                self._door,
                connection.host,
                now - connection.since,
            )
        else:
            log.debug("a connection to %s from %s made no call", self._door, connection.host)

    def _shut_those_that_must_go(self, now: float) -> None:
        peers = self._peers()
        # Dicts keep the order of arrival, so this shuts the oldest first.
        unproven = {i: c for i, c in self._by_inode.items() if not c.proven and not c.shut}
        per_host = Counter(connection.host for connection in unproven.values())
        total = len(unproven)
        late: Counter[str] = Counter()
        crowd: Counter[str] = Counter()
        for inode, connection in unproven.items():
            host = connection.host
            is_late = now - connection.since > PROOF_S
            is_crowd = per_host[host] > UNPROVEN_PER_HOST_MAX or total > UNPROVEN_MAX
            if not (is_late or is_crowd) or not self._shut(connection, inode):
                continue
            per_host[host] -= 1
            total -= 1
            if is_late:
                late[host] += host not in peers
                self.shut_unproven += 1
                self.shut_strangers += host not in peers
            else:
                crowd[host] += 1
                self.shut_crowd += 1
                self.shut_strangers += 1
        for host, count in (+late).items():
            log.warning(
                "closed %d connections to %s from %s: they did not authenticate within %g s",
                count,
                self._door,
                host,
                PROOF_S,
            )
        for host, count in crowd.items():
            log.warning(
                "closed %d connections to %s from %s: too many unauthenticated connections "
                "(limits: %d per address, %d in total)",
                count,
                self._door,
                host,
                UNPROVEN_PER_HOST_MAX,
                UNPROVEN_MAX,
            )

    def _peers(self) -> set[str]:
        """The addresses that have an open connection with a caller that has authenticated."""
        return {one.host for one in self._by_inode.values() if one.proven}

    def _shut(self, connection: _Connection, inode: int) -> bool:
        """Whether it is shut now. If not, the next look tries again."""
        taken = _take(connection.fd, inode)
        if taken is None:
            return False
        with taken, contextlib.suppress(OSError):  # the connection has ended already
            taken.shutdown(socket.SHUT_RDWR)
        connection.shut = True
        return True

    def document(self) -> dict[str, int]:
        with self._lock:
            found = list(self._by_inode.values())
        return {
            "meta_connections": len(found),
            "meta_connections_unproven": sum(not one.proven for one in found),
            "meta_shut_unproven": self.shut_unproven,
            "meta_shut_crowd": self.shut_crowd,
            "meta_ended_silent": self.silent,
        }


def _has_sent(fd: int, inode: int) -> bool:
    taken = _take(fd, inode)
    if taken is None:
        return False
    with taken:
        told = taken.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
    return int.from_bytes(told[_BYTES_RECEIVED_AT:], sys.byteorder) > 1


def _take(fd: int, inode: int) -> socket.socket | None:
    """A duplicate socket for this connection. gRPC may close `fd` at any time, and another thread
    may then reuse its number. None if that has happened, or if no descriptor is left for it."""
    try:
        copy = os.dup(fd)
    except OSError:
        return None
    if os.fstat(copy).st_ino != inode:
        os.close(copy)
        return None
    try:
        return socket.socket(fileno=copy)
    except OSError:
        os.close(copy)
        return None
