"""A worker that makes IPC frames by hand, so that it can send frames that no client would send.

Frames: docs/protocol.md, "IPC".
"""

import mmap
import os
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.clock import seconds

HEADER = struct.Struct("<IHHIIII")
HELLO, PING, REGISTER, UNREGISTER, SET, GET, EXISTS, REMOVE, CLEAR, STATS, PIN = range(1, 12)
REPLY_BIT = 0x8000
PROTOCOL_VERSION = 1

BAD_FRAME, BAD_VERSION, NOT_ATTACHED, NO_ATTACHMENT, BAD_VALUE, LIMIT, UNKNOWN_OP, FAILED = range(
    1, 9
)


@dataclass(frozen=True)
class Reply:
    op: int
    error: int
    request_id: int
    count: int
    value: int
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()


class Closed(Exception):
    """The daemon has closed the connection."""


class RawWorker:
    """One connection. Every wait has a timeout, so a daemon that hangs fails the test."""

    def __init__(self, socket_path: Path, *, hello: bool = True) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(seconds(10))
        self._socket.connect(str(socket_path))
        self._files: list[int] = []
        if hello:
            assert self.hello().error == 0

    def __enter__(self) -> "RawWorker":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()
        for file in self._files:
            os.close(file)
        self._files.clear()

    # --- frames ---------------------------------------------------------------------------

    def send(self, data: bytes, files: Sequence[int] = ()) -> None:
        """Sends any bytes. It is no error if the daemon closes the connection meanwhile."""
        try:
            sent = socket.send_fds(self._socket, [data], list(files)) if files else 0
            self._socket.sendall(data[sent:])
        except (BrokenPipeError, ConnectionResetError):
            pass

    def receive(self) -> Reply:
        body_bytes, op, error, request_id, count, value, _ = HEADER.unpack(self._exactly(24))
        return Reply(op, error, request_id, count, value, self._exactly(body_bytes))

    def ask(
        self,
        op: int,
        body: bytes = b"",
        *,
        count: int = 0,
        flags: int = 0,
        deadline_ms: int = 2000,
        took: int = 0,
        files: Sequence[int] = (),
    ) -> Reply:
        header = HEADER.pack(len(body), op, flags, 7, count, deadline_ms, took)
        self.send(header + body, files)
        return self.receive()

    def closed(self) -> bool:
        """Whether the daemon closes the connection instead of replying. Raises at the timeout."""
        try:
            self.receive()
        except Closed:
            return True
        return False

    def _exactly(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            try:
                piece = self._socket.recv(count - len(data))
            except ConnectionResetError:
                piece = b""
            if not piece:
                raise Closed
            data += piece
        return bytes(data)

    # --- requests of a client --------------------------------------------------------------

    def memfd(self, size: int) -> int:
        file = os.memfd_create("raw worker", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        self._files.append(file)
        os.ftruncate(file, size)
        return file

    def hello(
        self,
        *,
        version: int = PROTOCOL_VERSION,
        features: int = 0,
        token: bytes = bytes(16),
        namespace: bytes = b"t",
    ) -> Reply:
        head = struct.pack("<II16sII", version, features, token, len(namespace), 3)
        gate = self.memfd(4096)
        self.gate = mmap.mmap(gate, 4096)
        return self.ask(HELLO, head + namespace + b"raw", files=[gate])

    def write_gate(self, *, fence: int, writers: int) -> None:
        """See docs/protocol.md, "Silence"."""
        struct.pack_into("<I", self.gate, 64, writers)
        struct.pack_into("<I", self.gate, 0, fence)

    def register(self, file: int, size: int) -> Reply:
        return self.ask(REGISTER, struct.pack("<Q", size), files=[file])

    def region(self, size: int) -> tuple[int, mmap.mmap]:
        """A registered region: its id, and its memory."""
        file = self.memfd(size)
        reply = self.register(file, size)
        assert reply.error == 0, reply.text
        return reply.value, mmap.mmap(file, size)

    def pages(self, op: int, pages: Sequence[tuple[bytes, int, int, int]]) -> Reply:
        """SET or GET of (key, region, offset, length)."""
        return self.ask(op, columns(pages), count=len(pages))

    def statuses(self, op: int, pages: Sequence[tuple[bytes, int, int, int]]) -> list[int]:
        reply = self.pages(op, pages)
        assert reply.error == 0, reply.text
        return list(reply.body)


def columns(pages: Sequence[tuple[bytes, int, int, int]]) -> bytes:
    keys, regions, offsets, lengths = zip(*pages, strict=True)
    n = len(pages)
    return (
        struct.pack(f"<{n}I", *map(len, keys))
        + struct.pack(f"<{n}I", *regions)
        + struct.pack(f"<{n}Q", *offsets)
        + struct.pack(f"<{n}I", *lengths)
        + b"".join(keys)
    )


def key_column(keys: Sequence[bytes]) -> bytes:
    return struct.pack(f"<{len(keys)}I", *map(len, keys)) + b"".join(keys)
