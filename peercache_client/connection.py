"""One connection to the daemon: a request, its reply, and giving up safely."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
import weakref
from array import array
from typing import NamedTuple

from peercache_client import wire
from peercache_client.region import Segment, make_memfd, map_shared

# Beyond the deadline that the daemon was given: its reply may be on its way.
GRACE_S = 0.1
# How long a daemon's thread may take to finish the piece it is writing.
SILENCE_TIMEOUT_S = 1.0

_REPLY_BUFFER_BYTES = wire.REPLY.size + wire.PAGES_MAX


class Refused(Exception):
    """The daemon answered with an error."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class Lost(Exception):
    """The stream ended. The daemon touches nothing of that request any more."""


class GaveUp(Exception):
    """No reply in time. Unless the connection is `stuck`, the daemon has been fenced off."""

    def __init__(self) -> None:
        super().__init__("the daemon did not answer in time")


class Reply(NamedTuple):
    value: int
    body: memoryview  # valid until the next request on this connection


class Hello(NamedTuple):
    token: bytes
    incarnation: int
    version: str


class Connection:
    """Used by one thread at a time; `close` may come from any."""

    def __init__(
        self, path: str, token: bytes, namespace: bytes, name: bytes, timeout_s: float
    ) -> None:
        """Connects and attaches. OSError, Lost, GaveUp, Refused."""
        self.closed = False
        # The daemon hangs in the middle of a write: the memory of the last request must not
        # be used again.
        self.stuck = False
        # Shared by all connections of one attachment. 0: the daemon refused it.
        self.region_ids: dict[Segment, int] = {}
        self._in_use = threading.Lock()
        self._request_id = 0
        self._timeout_s = timeout_s + GRACE_S
        self._buffer = bytearray(_REPLY_BUFFER_BYTES)
        self._bytes = memoryview(self._buffer)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        _open_connections.add(self)
        gate_fd = -1
        try:
            self._socket.settimeout(self._timeout_s)
            self._socket.connect(path)
            gate_fd = make_memfd(wire.GATE_PAGE_BYTES, "peercache-gate")
            # A page per connection: giving up on one must not fence the other threads.
            self._gate = map_shared(gate_fd, wire.GATE_PAGE_BYTES).cast("I")
            head = wire.HELLO.pack(wire.PROTOCOL_VERSION, 0, token, len(namespace), len(name))
            reply = self.ask(wire.Op.hello, 0, 0, timeout_s, (head, namespace, name), file=gate_fd)
            _, text_bytes, got_token, incarnation, _, _, _, _ = wire.HELLO_REPLY.unpack_from(
                reply.body
            )
            text = bytes(reply.body[wire.HELLO_REPLY.size :][:text_bytes])
            self.hello = Hello(got_token, incarnation, text.decode(errors="replace"))
        except BaseException:
            self.close()
            raise
        finally:
            if gate_fd >= 0:
                os.close(gate_fd)

    def ask(
        self,
        op: int,
        flags: int,
        count: int,
        timeout_s: float,
        body: tuple[bytes, ...] = (),
        file: int = -1,
    ) -> Reply:
        """Sends one request and waits for its reply. Lost, GaveUp, Refused."""
        with self._in_use:
            if self.closed:
                raise Lost
            try:
                return self._exchange(op, flags, count, timeout_s, body, file)
            except TimeoutError:
                self._fence()
                self.close_now()
                raise GaveUp from None
            except OSError as error:
                self.close_now()
                raise Lost(error.strerror) from None
            except Refused as refused:
                if refused.code in wire.CLOSING_ERRORS:
                    self.close_now()
                raise
            except BaseException:
                # Interrupted in the middle (KeyboardInterrupt): the reply would be taken for
                # the next one's, and the daemon may still be writing.
                if not self.closed:
                    self._fence()
                    self.close_now()
                raise

    def _exchange(
        self,
        op: int,
        flags: int,
        count: int,
        timeout_s: float,
        body: tuple[bytes, ...],
        file: int,
    ) -> Reply:
        sock = self._socket
        buffer = self._buffer
        if self._timeout_s != timeout_s + GRACE_S:
            self._timeout_s = timeout_s + GRACE_S
            sock.settimeout(self._timeout_s)
        self._request_id = request_id = (self._request_id + 1) & 0xFFFFFFFF
        # Never 0: the daemon would have no time at all.
        deadline_ms = int(timeout_s * 1000) + 1
        content = b"".join(body)
        frame = wire.REQUEST.pack(len(content), op, flags, request_id, count, deadline_ms, 0)
        began = time.monotonic()
        if file >= 0:
            sent = sock.sendmsg(
                [frame, content],
                [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", (file,)))],
            )
            if sent < len(frame) + len(content):
                sock.sendall((frame + content)[sent:])
        else:
            sock.sendall(frame + content)

        got = sock.recv_into(buffer)
        while 0 < got < wire.REPLY.size:
            got += self._receive(self._bytes[got:], began)
        if got == 0:
            raise ConnectionResetError(None, "the daemon closed the connection")
        body_bytes, reply_op, error, reply_id, _, value, _ = wire.REPLY.unpack_from(buffer)
        end = wire.REPLY.size + body_bytes
        if end <= len(buffer):
            while got < end:
                got += self._receive(self._bytes[got:end], began)
            reply_body = self._bytes[wire.REPLY.size : end]
        else:
            large = memoryview(bytearray(body_bytes))
            filled = got - wire.REPLY.size
            large[:filled] = self._bytes[wire.REPLY.size : got]
            while filled < body_bytes:
                filled += self._receive(large[filled:], began)
            reply_body = large
        if error:
            raise Refused(error, bytes(reply_body).decode(errors="replace"))
        if got > end or reply_id != request_id or reply_op != op | wire.REPLY_BIT:
            raise ConnectionResetError(None, "the daemon answered something else than was asked")
        return Reply(value, reply_body)

    def _receive(self, place: memoryview, began: float) -> int:
        """The rare case of a reply in pieces: each piece has only the time that is left."""
        left_s = began + self._timeout_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        self._socket.settimeout(left_s)
        try:
            got = self._socket.recv_into(place)
        finally:
            self._socket.settimeout(self._timeout_s)
        if got == 0:
            raise ConnectionResetError(None, "the daemon closed the connection")
        return got

    def _fence(self) -> None:
        """Takes the daemon's right to touch our memory away (native/common/write_gate.h)."""
        self._gate[wire.GATE_FENCE_WORD] = 1
        end = time.monotonic() + SILENCE_TIMEOUT_S
        while True:
            # Also the full memory barrier between our store and our load: the thread leaves
            # the processor, or at least enters the kernel's scheduler.
            time.sleep(0.0005)
            if self._gate[wire.GATE_WRITERS_WORD] == 0:
                return
            if time.monotonic() >= end:
                self.stuck = True
                return

    def close(self) -> None:
        """Waits for a request in progress, which has its own deadline."""
        with self._in_use:
            self.close_now()

    def close_now(self) -> None:
        self.closed = True
        with contextlib.suppress(OSError):
            self._socket.close()

    def __del__(self) -> None:
        # A thread that ends takes its connection along; without this the interpreter would
        # complain of a socket left open.
        sock = getattr(self, "_socket", None)
        if sock is not None:
            sock.close()


_open_connections: weakref.WeakSet[Connection] = weakref.WeakSet()


def _close_inherited() -> None:
    """In a forked child: while it held them, the daemon would not see its parent die."""
    for connection in list(_open_connections):
        connection.close_now()


os.register_at_fork(after_in_child=_close_inherited)
