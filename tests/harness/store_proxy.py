"""A proxy before an S3 server, as a process: it adds a delay, and fails by a plan and a seed.

Faults hit a share of the requests. It closes the connection before or in the middle of the answer,
answers 503 SlowDown, flips a bit of a payload, or delivers a part of it. A late answer is taken
from the server at once, and delivered later. Records of removals are stored as they are. Listings
are not mangled: they have no checksum (docs/cold-tier.md).
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any

from peercache_bench.process import die_with_parent, free_port

PART_BYTES = 1 << 20
Change = Callable[[bytes], bytes]
RECORDS = "/voids/"
PAGES = re.compile(rb"GET \S*/pages/[0-9a-f]{32}/")
PAGE_READS = "page reads"
SLOW_DOWN = (
    b"HTTP/1.1 503 Slow Down\r\nContent-Length: 36\r\nConnection: close\r\n\r\n"
    b"<Error><Code>SlowDown</Code></Error>"
)


@dataclass(frozen=True)
class Plan:
    delay_s: float = 0.0  # of each request
    cut: float = 0.0
    throttle: float = 0.0
    flip: float = 0.0
    truncate: float = 0.0
    late_s: dict[str, float] = field(default_factory=dict)  # of answers, by a word of the URL


class StoreProxy:
    """A context manager. `launcher`: a command that runs it on another host, which has the address
    `host`."""

    def __init__(
        self, target: str, *, host: str = "127.0.0.1", launcher: Sequence[str] = (), seed: int = 1
    ) -> None:
        port = free_port("127.0.0.1")
        self.endpoint = f"http://{host}:{port}"
        self._plan = Plan()
        self._process = subprocess.Popen(
            [*launcher, sys.executable, "-m", __name__, target, f"{host}:{port}", str(seed)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
        )

    def __enter__(self) -> StoreProxy:
        self.plan()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.communicate()

    def plan(self, **changes: Any) -> dict[str, int]:
        """From now on. Returns how many faults of each kind there have been, and as PAGE_READS how
        many of all hit a read of pages."""
        self._plan = replace(self._plan, **changes)
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(asdict(self._plan)).encode() + b"\n")
        self._process.stdin.flush()
        done: dict[str, int] = json.loads(self._process.stdout.readline())
        return done


class _Proxy:
    def __init__(self, target: str, seed: int) -> None:
        self._target = _address(target)
        self._rng = random.Random(seed)
        self.plan = Plan()
        self.done: dict[str, int] = {}

    def serve(self, client: socket.socket) -> None:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with contextlib.suppress(OSError, _Gone), client:
            request = _Stream(client)
            while True:
                self._one(client, request)

    def _one(self, client: socket.socket, request: _Stream) -> None:
        plan = self.plan
        head, name = request.head()
        time.sleep(plan.delay_s)
        is_page_read = PAGES.match(name) is not None

        def befalls(fault: str) -> bool:
            hits: bool = self._rng.random() < getattr(plan, fault)
            for counted in (fault, PAGE_READS) if hits and is_page_read else (fault,):
                self.done[counted] = self.done.get(counted, 0) + hits
            return hits

        if befalls("throttle"):
            request.forward(_length(head), lambda part: None)
            client.sendall(SLOW_DOWN)
            raise _Gone
        if befalls("cut"):
            raise _Gone
        is_record = RECORDS.encode() in name
        is_listing = b"list-type=" in name
        with socket.create_connection(self._target) as server:
            server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            server.sendall(head)
            answer = _Stream(server)
            if b"expect: 100-continue" in head.lower():
                client.sendall(answer.head()[0])
            flips = not is_record and name.startswith(b"PUT") and befalls("flip")
            request.forward(_length(head), server.sendall, self._flipped if flips else None)
            head, _ = answer.head()
            length = 0 if name.startswith(b"HEAD") else _length(head)
            for word, late_s in plan.late_s.items():
                if word.encode() in name:
                    time.sleep(late_s)
            # The client's connection stays open, as with most stores.
            head = re.sub(rb"(?i)\r\nconnection: close", b"", head)
            if length and befalls("cut"):
                client.sendall(head)
                answer.forward(self._rng.randrange(length), client.sendall)
                raise _Gone
            if length and not is_listing and befalls("truncate"):
                kept = self._rng.randrange(length)
                head = re.sub(rb"(?i)(\r\ncontent-length: )\d+", rb"\g<1>%d" % kept, head)
                client.sendall(head)
                answer.forward(kept, client.sendall)
                return
            client.sendall(head)
            flips = not is_listing and length > 0 and befalls("flip")
            answer.forward(length, client.sendall, self._flipped if flips else None)

    def _flipped(self, part: bytes) -> bytes:
        flipped = bytearray(part)
        flipped[self._rng.randrange(len(part))] ^= 1 << self._rng.randrange(8)
        return bytes(flipped)


class _Gone(Exception):
    """The connection ends."""


class _Stream:
    """The bytes of a connection: heads of HTTP messages, and their bodies."""

    def __init__(self, source: socket.socket) -> None:
        self._source = source
        self._buffer = b""

    def head(self) -> tuple[bytes, bytes]:
        """With its end, and its first line."""
        while b"\r\n\r\n" not in self._buffer:
            self._buffer += self._read(65536)
        head, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
        return head + b"\r\n\r\n", head.partition(b"\r\n")[0]

    def forward(
        self, length: int, send: Callable[[bytes], None], change: Change | None = None
    ) -> None:
        """`change`: of the first part."""
        while length:
            part = self._buffer[:length] or self._read(min(length, PART_BYTES))
            self._buffer = self._buffer[len(part) :]
            length -= len(part)
            send(change(part) if change else part)
            change = None

    def _read(self, length: int) -> bytes:
        part = self._source.recv(length)
        if not part:
            raise _Gone
        return part


def _length(head: bytes) -> int:
    found = re.search(rb"(?i)\r\ncontent-length: (\d+)", head)
    return int(found[1]) if found else 0


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.removeprefix("http://").rpartition(":")
    return host, int(port)


def _main(target: str, listen: str, seed: str) -> None:
    die_with_parent()
    proxy = _Proxy(target, int(seed))
    listener = socket.create_server(_address(listen), backlog=128)

    def accept() -> None:
        while True:
            client, _ = listener.accept()
            threading.Thread(target=proxy.serve, args=(client,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    for line in sys.stdin:
        proxy.plan = Plan(**json.loads(line))
        print(json.dumps(proxy.done), flush=True)


if __name__ == "__main__":
    _main(*sys.argv[1:])
