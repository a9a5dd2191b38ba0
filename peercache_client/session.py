"""This process's attachment to the daemon: one connection per thread, and coming back.

While the daemon answers, connections are made by the threads that need them. Once it does
not, one background thread tries with growing pauses, and everybody else is told at once that
there is no daemon: no call waits for a dead one.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import random
import threading
import time
import weakref

from peercache_client import wire
from peercache_client.connection import Connection, GaveUp, Lost, Refused
from peercache_client.region import Segment

log = logging.getLogger("peercache_client")

BACKOFF_MIN_S = 0.05
BACKOFF_MAX_S = 2.0
# For HELLO and REGISTER, if the call at hand has so much time: mapping a region is quick.
CONTROL_TIMEOUT_S = 1.0
# Where its time is over in the middle: the reply may be there already.
_CONTROL_TIMEOUT_MIN_S = 0.001


class Late(Exception):
    """The call's time was over before the daemon could be asked: other threads were."""


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

    def connection(self, end: float) -> Connection | None:
        """This thread's connection; None, at once, while there is no daemon. Late.

        `end`: monotonic seconds, when the call at hand must be over.
        """
        mine: Connection | None = getattr(self._of_thread, "connection", None)
        if mine is not None and not mine.closed:
            return mine
        if self._away or self._closed.is_set():
            return None
        self._lock_before(end)
        try:
            if self._away or self._closed.is_set():
                return None
            mine, self._spare = self._spare, None
            if mine is None or mine.closed:
                mine = self._connect(end)
        except (OSError, Lost, GaveUp, Refused) as error:
            self._lose(error)
            return None
        finally:
            self._lock.release()
        self._of_thread.connection = mine
        return mine

    def daemon_hangs(self, error: Exception) -> None:
        """Nobody else shall wait for it before a probe has been answered."""
        # Whoever has the lock is asking the daemon and will see for itself. To wait for that here
        # would take the call that gives up beyond its deadline.
        if not self._lock.acquire(blocking=False):
            return
        try:
            if not self._away:
                self._lose(error)
        finally:
            self._lock.release()

    def _lock_before(self, end: float) -> None:
        """Takes the lock. Late."""
        left_s = end - time.monotonic()
        # A wait without end is -1 for a lock.
        if left_s <= 0 or not self._lock.acquire(timeout=-1 if left_s == math.inf else left_s):
            raise Late

    def _connect(self, end: float) -> Connection:
        """Joins our attachment, or makes a new one. Holds the lock."""
        attachment = self._attachment
        if attachment is not None:
            with contextlib.suppress(Refused):
                joined = self._open(attachment.token, end)
                joined.region_ids = attachment.region_ids
                return joined
            # The daemon is another one, or saw all our connections go: begin anew.
        connection = self._open(bytes(wire.TOKEN_BYTES), end)
        self._attachment = Attachment(connection)
        for segment in list(self._segments):
            self._register(connection, segment, end)
        return connection

    def _open(self, token: bytes, end: float) -> Connection:
        connection = Connection(
            self._path, token, self._namespace, self._name, _control_timeout_s(end)
        )
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
                connection = self._connect(math.inf)
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
        with contextlib.suppress(Late, Lost, GaveUp):
            connection = self.connection(time.monotonic() + CONTROL_TIMEOUT_S)
            if connection is not None:
                self.region_id(connection, segment, math.inf)

    def remove(self, segment: Segment) -> None:
        self._segments.discard(segment)
        region_ids = self._attachment.region_ids if self._attachment is not None else {}
        region_id = region_ids.pop(segment, 0)
        if region_id == 0:
            return
        with contextlib.suppress(Late, Lost, GaveUp, Refused):
            connection = self.connection(time.monotonic() + CONTROL_TIMEOUT_S)
            if connection is None or connection.region_ids is not region_ids:
                return  # gone with the attachment
            connection.ask(wire.Op.unregister, 0, region_id, CONTROL_TIMEOUT_S)

    def region_id(self, connection: Connection, segment: Segment, end: float) -> int:
        """The daemon's number for this segment; 0, which is none, if it refused. Late, Lost,
        GaveUp."""
        region_id = connection.region_ids.get(segment)
        if region_id is None:
            self._lock_before(end)
            try:
                region_id = connection.region_ids.get(segment)
                if region_id is None:
                    region_id = self._register(connection, segment, end)
            finally:
                self._lock.release()
        return region_id

    def _register(self, connection: Connection, segment: Segment, end: float) -> int:
        """Holds the lock."""
        region_id = 0
        if not segment.quarantined:
            try:
                region_id = connection.ask(
                    wire.Op.register,
                    0,
                    0,
                    _control_timeout_s(end),
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


def _control_timeout_s(end: float) -> float:
    left_s = end - time.monotonic()
    return min(max(left_s, _CONTROL_TIMEOUT_MIN_S), CONTROL_TIMEOUT_S)


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
