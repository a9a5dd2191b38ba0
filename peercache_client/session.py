"""This process's attachment to the daemon: one connection per thread, and coming back.

While the daemon answers, connections are made by the threads that need them. Once it does
not, one background thread tries with growing pauses, and everybody else is told at once that
there is no daemon: no call waits for a dead one.
"""

from __future__ import annotations

import contextlib
import logging
import os
import random
import threading
import weakref

from peercache_client import wire
from peercache_client.connection import Connection, GaveUp, Lost, Refused
from peercache_client.region import Segment

log = logging.getLogger("peercache_client")

BACKOFF_MIN_S = 0.05
BACKOFF_MAX_S = 2.0
# For HELLO and REGISTER, whatever time the call at hand has: mapping a region is quick.
CONTROL_TIMEOUT_S = 1.0


class Attachment:
    """What the daemon knows of us; gone with the daemon, or with our last connection."""

    def __init__(self, first: Connection) -> None:
        self.token = first.hello.token
        self.region_ids = first.region_ids


class Session:
    def __init__(self, path: str, namespace: bytes, name: bytes) -> None:
        self.pid = os.getpid()
        self.last_error = ""
        self.reconnects = 0
        self._path = path
        self._namespace = namespace
        self._name = name
        self._segments: set[Segment] = set()
        # Guards everything below, and lets one thread connect at a time.
        self._lock = threading.Lock()
        self._attachment: Attachment | None = None
        self._connections: weakref.WeakSet[Connection] = weakref.WeakSet()
        self._of_thread = threading.local()
        self._spare: Connection | None = None
        self._away = False
        self._closed = threading.Event()

    def after_fork(self) -> Session:
        """A session of the child's own, with the same regions; nothing else is shared."""
        session = Session(self._path, self._namespace, self._name)
        session._segments = set(self._segments)
        if self._closed.is_set():
            session._closed.set()
        return session

    # --- connections

    @property
    def away(self) -> bool:
        return self._away

    def connection(self, timeout_s: float) -> Connection | None:
        """This thread's connection; None, at once, while there is no daemon."""
        mine: Connection | None = getattr(self._of_thread, "connection", None)
        if mine is not None and not mine.closed:
            return mine
        if self._away or self._closed.is_set():
            return None
        if not self._lock.acquire(timeout=timeout_s):
            return None
        try:
            if self._away or self._closed.is_set():
                return None
            mine, self._spare = self._spare, None
            if mine is None or mine.closed:
                mine = self._connect(min(timeout_s, CONTROL_TIMEOUT_S))
        except (OSError, Lost, GaveUp, Refused) as error:
            self._lose(error)
            return None
        finally:
            self._lock.release()
        self._of_thread.connection = mine
        return mine

    def daemon_hangs(self, error: Exception) -> None:
        """Nobody else shall wait for it before a probe has been answered."""
        with self._lock:
            if not self._away:
                self._lose(error)

    def _connect(self, timeout_s: float) -> Connection:
        """Joins our attachment, or makes a new one. Holds the lock."""
        attachment = self._attachment
        if attachment is not None:
            with contextlib.suppress(Refused):
                joined = self._open(attachment.token, timeout_s)
                joined.region_ids = attachment.region_ids
                return joined
            # The daemon is another one, or saw all our connections go: begin anew.
        connection = self._open(bytes(wire.TOKEN_BYTES), timeout_s)
        self._attachment = Attachment(connection)
        for segment in list(self._segments):
            self._register(connection, segment)
        return connection

    def _open(self, token: bytes, timeout_s: float) -> Connection:
        connection = Connection(self._path, token, self._namespace, self._name, timeout_s)
        self._connections.add(connection)
        return connection

    def _lose(self, error: Exception) -> None:
        """Holds the lock."""
        if self._closed.is_set():
            return
        self._away = True
        self.last_error = _sentence(error)
        log.warning(
            "no daemon at %s (%s): pages are misses until it is back", self._path, self.last_error
        )
        threading.Thread(
            target=_come_back,
            args=(weakref.ref(self), self._closed),
            daemon=True,
            name="peercache-reconnect",
        ).start()

    def try_again(self) -> bool:
        """One attempt of the background thread."""
        with self._lock:
            try:
                connection = self._connect(CONTROL_TIMEOUT_S)
            except (OSError, Lost, GaveUp, Refused) as error:
                self.last_error = _sentence(error)
                return False
            if self._closed.is_set():
                connection.close()
                return True
            self._spare = connection
            self._away = False
            self.last_error = ""
            self.reconnects += 1
        log.warning("the daemon at %s is back", self._path)
        return True

    # --- regions

    def add(self, segment: Segment) -> None:
        self._segments.add(segment)
        connection = self.connection(CONTROL_TIMEOUT_S)
        if connection is not None:
            with contextlib.suppress(Lost, GaveUp):
                self.region_id(connection, segment)

    def remove(self, segment: Segment) -> None:
        self._segments.discard(segment)
        region_ids = self._attachment.region_ids if self._attachment is not None else {}
        region_id = region_ids.pop(segment, 0)
        if region_id == 0:
            return
        connection = self.connection(CONTROL_TIMEOUT_S)
        if connection is None or connection.region_ids is not region_ids:
            return  # gone with the attachment
        with contextlib.suppress(Lost, GaveUp, Refused):
            connection.ask(wire.Op.unregister, 0, region_id, CONTROL_TIMEOUT_S)

    def region_id(self, connection: Connection, segment: Segment) -> int:
        """The daemon's number for this segment; 0, which is none, if it refused. Lost, GaveUp."""
        region_id = connection.region_ids.get(segment)
        if region_id is None:
            with self._lock:
                region_id = connection.region_ids.get(segment)
                if region_id is None:
                    region_id = self._register(connection, segment)
        return region_id

    def _register(self, connection: Connection, segment: Segment) -> int:
        """Holds the lock."""
        region_id = 0
        if not segment.quarantined:
            try:
                region_id = connection.ask(
                    wire.Op.register,
                    0,
                    0,
                    CONTROL_TIMEOUT_S,
                    (wire.REGION_BYTES.pack(segment.size_bytes),),
                    file=segment.fd,
                ).value
            except Refused as refused:
                log.warning(
                    "the daemon refuses a region of %d bytes: %s", segment.size_bytes, refused
                )
        connection.region_ids[segment] = region_id
        return region_id

    # --- the end

    def close(self) -> None:
        """Waits for the requests in progress, which have their deadlines."""
        self._closed.set()
        with self._lock:
            self._spare = None
            connections = list(self._connections)
        for connection in connections:
            connection.close()


def _sentence(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__


def _come_back(session: weakref.ref[Session], closed: threading.Event) -> None:
    """Holds no session while it pauses: a forgotten client must not be kept alive."""
    pause_s = BACKOFF_MIN_S
    while True:
        # Jitter: the workers of a host shall not all knock at once.
        if closed.wait(pause_s * random.uniform(0.5, 1.0)):
            return
        pause_s = min(2 * pause_s, BACKOFF_MAX_S)
        alive = session()
        if alive is None or alive.try_again():
            return
        del alive
