"""A worker of a real data plane in virtual time. It makes one call at a time and passes the answer
to a callback."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

from harness.raw_worker import (
    CLEAR,
    EXISTS,
    GET,
    HEADER,
    REMOVE,
    SET,
    Closed,
    RawWorker,
    Reply,
    columns,
    key_column,
)

from sim.real_engine import PATIENCE_MS, RealEngine
from sim.real_time import RealTime

PAGE_BYTES = 4096
WORD = struct.Struct("<Q")
WORDS = PAGE_BYTES // WORD.size

# None: the engine ended before it answered.
Done = Callable[[Reply | None], object]


class _Line(RawWorker):
    def fileno(self) -> int:
        return self._socket.fileno()


class RealWorker:
    """One worker. Every word of a page it sets is the page's version."""

    def __init__(
        self, engine: RealEngine, socket_path: Path, namespace: str, real_time: RealTime
    ) -> None:
        self.namespace = namespace
        self._engine = engine
        self._real_time = real_time
        self._raw = _Line(socket_path, hello=False)
        assert self._raw.hello(namespace=namespace.encode()).error == 0
        self._is_open = True
        self._region, self._memory = self._raw.region(PAGE_BYTES)
        self._done: Done | None = None
        real_time.watch(self._raw.fileno(), self._on_readable)

    @property
    def is_free(self) -> bool:
        return self._is_open and self._done is None

    def set(self, key: bytes, version: int, done: Done) -> None:
        self._memory[:] = WORD.pack(version) * WORDS
        self._begin(SET, self._page(key), done)

    def get(self, key: bytes, done: Done) -> None:
        self._memory[:] = bytes(PAGE_BYTES)
        self._begin(GET, self._page(key), done)

    def exists(self, key: bytes, done: Done) -> None:
        self._begin(EXISTS, key_column([key]), done)

    def remove(self, key: bytes, done: Done) -> None:
        self._begin(REMOVE, key_column([key]), done)

    def clear(self, done: Done) -> None:
        self._begin(CLEAR, b"", done)

    def version(self) -> int:
        """The version of the page that the last get returned."""
        (version,) = WORD.unpack(self._memory[: WORD.size])
        assert self._memory[:] == WORD.pack(version) * WORDS, "a page of two contents"
        return int(version)

    def close(self) -> None:
        """Called when the engine ends, or earlier."""
        if self._is_open:
            self._is_open = False
            self._real_time.forget(self._raw.fileno())
            self._raw.close()
            self._end(None)

    def _page(self, key: bytes) -> bytes:
        return columns([(key, self._region, 0, PAGE_BYTES)])

    def _begin(self, op: int, body: bytes, done: Done) -> None:
        assert self.is_free
        self._done = done
        self._engine.calls += 1
        count = 1 if body else 0
        self._raw.send(HEADER.pack(len(body), op, 0, 7, count, PATIENCE_MS, 0) + body)

    def _on_readable(self) -> None:
        try:
            reply = self._raw.receive()
        except Closed:
            self.close()
            return
        assert reply.error == 0, reply.text
        self._end(reply)

    def _end(self, reply: Reply | None) -> None:
        if self._done is None:
            return
        done, self._done = self._done, None
        self._engine.calls -= 1
        done(reply)
