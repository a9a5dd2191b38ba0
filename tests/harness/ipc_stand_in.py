"""A daemon's IPC socket without the daemon: a dict of pages, served in Python.

Implements docs/protocol.md, "IPC", independently of the daemon, so that client and daemon cannot
share a mistake unnoticed. A test can make it misbehave as a real daemon might: hang, die in the
middle of a request, stay in the middle of a write, refuse.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import socket
import struct
import threading
from array import array
from dataclasses import dataclass, field
from pathlib import Path

from harness.clock import seconds

HEADER = struct.Struct("<IHHIIII")
HELLO, PING, REGISTER, UNREGISTER, SET, GET, EXISTS, REMOVE, CLEAR, STATS, PIN = range(1, 12)
OK, ABSENT, BAD_KEY, BAD_REGION, LENGTH_MISMATCH, REGION_LOST = 0, 1, 8, 9, 12, 13
NO_ATTACHMENT, BAD_VALUE, LIMIT = 4, 5, 6
FEATURE_NAMES, FLAG_NAMES = 64, 2048
NAME_BYTES = {0x88: 8, 0x89: 8, 0xFF: 0}  # by kind; kinds up to 32 are their own size


@dataclass
class Attachment:
    namespace: str
    token: bytes
    regions: dict[int, mmap.mmap] = field(default_factory=dict)
    connections: int = 0


@dataclass
class Request:
    op: int
    flags: int
    count: int
    deadline_ms: int
    took: int
    keys: list[bytes] = field(default_factory=list)
    regions: list[int] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    parent: bytes = b""
    for_ms: int = 0
    names: list[tuple[int, bytes]] = field(default_factory=list)  # kind, hash
    block_tokens: int = 0


class IpcStandIn:
    """Pages outlive `stop` and `start`, attachments do not, as in a daemon's warm restart."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.pages: dict[tuple[str, bytes], bytes] = {}
        self.requests: list[Request] = []
        self.attachments: list[Attachment] = []
        self.attachments_made = 0
        self.unreached = b""
        self.stats = b"{}"
        self.refuse_regions = False
        # Named in HELLO. 0: it is a daemon of the first version of the protocol.
        self.features = 0
        self.pin_sentence = b""
        # Ops that it reads and leaves unanswered until `go_on`; with `writing`, in mid-write.
        self.hang_on: set[int] = set()
        self.writing = False
        self.dies_writing = False  # leaves that write unfinished
        self.hanging = threading.Event()
        self.go_on = threading.Event()
        # Ops at which the daemon "dies": it closes the connection without a reply.
        self.die_on: set[int] = set()
        # Wrong values for fields of reply headers: request_id, body_bytes.
        self.wrong: dict[str, int] = {}
        # Cuts replies into pieces of this many bytes.
        self.piece_bytes = 1 << 30
        self._next_region = 1
        self._lock = threading.Lock()
        self._listener: socket.socket | None = None
        self._connections: list[socket.socket] = []
        self._threads: list[threading.Thread] = []

    def start(self) -> IpcStandIn:
        self.path.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self.path))
        self._listener.listen(64)
        thread = threading.Thread(target=self._accept, args=(self._listener,), daemon=True)
        thread.start()
        self._threads = [thread]
        return self

    def stop(self) -> None:
        """Like a daemon that dies: the socket file stays, and nobody listens."""
        if self._listener is not None:
            self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            self._listener = None
            # Else a connection that it has just accepted would be served for ever.
            self._threads[0].join(seconds(10))
        with self._lock:
            connections, self._connections = self._connections, []
        for connection in connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self.go_on.set()
        for thread in self._threads:
            thread.join(seconds(10))
        self.attachments.clear()
        self.go_on.clear()

    def __enter__(self) -> IpcStandIn:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def asked(self, op: int) -> list[Request]:
        return [request for request in self.requests if request.op == op]

    @property
    def connections(self) -> int:
        with self._lock:
            return len(self._connections)

    # --- inside

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with self._lock:
                self._connections.append(connection)
            thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        attachment: Attachment | None = None
        gate: mmap.mmap | None = None
        try:
            while True:
                data, fds, _, _ = socket.recv_fds(connection, 1 << 20, 4)
                if not data:
                    return
                body_bytes, op, flags, request_id, count, deadline_ms, took = HEADER.unpack_from(
                    data
                )
                while len(data) < HEADER.size + body_bytes:
                    more = connection.recv(1 << 20)
                    assert more
                    data += more
                body = data[HEADER.size :]
                assert len(body) == body_bytes
                request = Request(op, flags, count, deadline_ms, took)
                if op in (SET, GET, EXISTS, REMOVE, PIN):
                    self._parse(request, body)
                self.requests.append(request)
                if op in self.die_on:
                    return
                if op in self.hang_on:
                    if gate is not None and self.writing:
                        gate[64] = 1
                    self.hanging.set()
                    self.go_on.wait(seconds(30))
                    if gate is not None:
                        fenced = gate[0] != 0
                        gate[64] = gate[64] if self.dies_writing else 0
                        if fenced:
                            return
                error, value, answer = 0, 0, b""
                if op == HELLO:
                    error, answer, attachment = self._hello(body, attachment)
                    gate = mmap.mmap(fds[0], 4096)
                elif attachment is None:
                    raise AssertionError("a request before HELLO")
                elif op == REGISTER:
                    error, value, answer = self._register(attachment, body, fds[0])
                elif op == UNREGISTER:
                    attachment.regions.pop(count, None)  # unknown after a reconnect
                else:
                    value, answer = self._answer(request, attachment)
                for fd in fds:
                    os.close(fd)
                told = {"body_bytes": len(answer), "request_id": request_id, **self.wrong}
                reply = HEADER.pack(
                    told["body_bytes"], op | 0x8000, error, told["request_id"], count, value, 0
                )
                reply += answer
                for begin in range(0, len(reply), self.piece_bytes):
                    connection.sendall(reply[begin : begin + self.piece_bytes])
                if error == NO_ATTACHMENT:
                    return
        except OSError:
            return
        finally:
            with self._lock:
                if connection in self._connections:
                    self._connections.remove(connection)
                if attachment is not None:
                    attachment.connections -= 1
                    if attachment.connections == 0 and attachment in self.attachments:
                        self.attachments.remove(attachment)
            connection.close()

    def _hello(
        self, body: bytes, attachment: Attachment | None
    ) -> tuple[int, bytes, Attachment | None]:
        version, features, token, namespace_bytes, name_bytes = struct.unpack_from("<II16sII", body)
        assert version == 1 and attachment is None
        assert len(body) == 32 + namespace_bytes + name_bytes
        with self._lock:
            if token == bytes(16):
                namespace = body[32 : 32 + namespace_bytes].decode()
                attachment = Attachment(namespace, os.urandom(16))
                self.attachments.append(attachment)
                self.attachments_made += 1
            else:
                same = [one for one in self.attachments if one.token == token]
                if not same:
                    return NO_ATTACHMENT, b"no such token", None
                attachment = same[0]
            attachment.connections += 1
        reply = struct.pack("<II16sQIIII", 1, 4, attachment.token, 7, 65536, 64 << 20, 600000, 64)
        named = self.features.to_bytes(4, "little") if features and self.features else b""
        return 0, reply + b"fake" + named, attachment

    def _register(self, attachment: Attachment, body: bytes, fd: int) -> tuple[int, int, bytes]:
        (size_bytes,) = struct.unpack("<Q", body)
        if self.refuse_regions:
            return LIMIT, 0, b"no more regions"
        assert size_bytes == os.fstat(fd).st_size
        with self._lock:  # connections register at the same time
            region = self._next_region
            self._next_region += 1
        attachment.regions[region] = mmap.mmap(fd, size_bytes)
        return 0, region, b""

    def _parse(self, request: Request, body: bytes) -> None:
        n = request.count
        assert n <= 65536
        key_lengths = array("I", body[: 4 * n])
        at = 4 * n
        if request.op in (SET, GET):
            request.regions = list(array("I", body[4 * n : 8 * n]))
            request.offsets = list(array("Q", body[8 * n : 16 * n]))
            request.lengths = list(array("I", body[16 * n : 20 * n]))
            at = 20 * n
        if request.flags & 1:
            (parent_bytes,) = struct.unpack_from("<I", body, at)
            request.parent = body[at + 4 : at + 4 + parent_bytes]
            assert len(request.parent) == parent_bytes > 0
            at += 4 + parent_bytes
        for length in key_lengths:
            request.keys.append(body[at : at + length])
            at += length
        if request.op == EXISTS:
            at += 4 * bool(request.flags & 4) + 4 * bool(request.flags & 8)
        if request.op == PIN:
            (request.for_ms,) = struct.unpack_from("<I", body, at)
            at += 4
        if request.flags & FLAG_NAMES:
            assert request.op == SET and self.features & FEATURE_NAMES
            kinds = body[len(body) - 4 - n : len(body) - 4]
            for kind in kinds:
                size = NAME_BYTES.get(kind, kind)
                request.names.append((kind, body[at : at + size]))
                at += size
            (request.block_tokens,) = struct.unpack_from("<I", body, at + n)
            at += n + 4
        assert at == len(body)

    def _answer(self, request: Request, attachment: Attachment) -> tuple[int, bytes]:
        space = attachment.namespace
        if request.op == EXISTS:
            present = [(space, key) in self.pages for key in request.keys]
            prefix = present.index(False) if False in present else len(present)
            if request.flags & 16:
                sizes = [len(self.pages.get((space, key), b"")) for key in request.keys]
                return prefix, array("I", sizes).tobytes()
            return prefix, bytes(present) if request.flags & 2 else b""
        if request.op == REMOVE:
            gone = [self.pages.pop((space, key), None) for key in request.keys]
            statuses = bytes(ABSENT if page is None else OK for page in gone)
            return statuses.count(OK), statuses
        if request.op == PIN:
            assert self.features & 2, "a pin for a daemon that knows none"
            statuses = bytes((space, key) not in self.pages for key in request.keys)
            return statuses.count(OK), statuses + self.pin_sentence
        if request.op in (SET, GET):
            statuses = bytes(self._page(request, i, attachment) for i in range(request.count))
            return statuses.count(OK), statuses
        if request.op == CLEAR:
            for key in [key for key in self.pages if key[0] == space]:
                del self.pages[key]
            return (1 if self.unreached else 0), self.unreached
        if request.op == STATS:
            return 0, self.stats
        assert request.op == PING
        return 0, b""

    def _page(self, request: Request, i: int, attachment: Attachment) -> int:
        key = (attachment.namespace, request.keys[i])
        if not 1 <= len(request.keys[i]) <= 4096:
            return BAD_KEY
        region = attachment.regions.get(request.regions[i])
        if region is None:
            return BAD_REGION
        begin = request.offsets[i]
        end = begin + request.lengths[i]
        assert begin < end <= len(region)
        if request.op == SET:
            self.pages[key] = region[begin:end]
            return OK
        if key not in self.pages:
            return ABSENT
        if len(self.pages[key]) != request.lengths[i]:
            return LENGTH_MISMATCH
        region[begin:end] = self.pages[key]
        return OK
