"""A daemon's two interfaces without the daemon, for tests of its clients.

The real `AdminServer` serves the admin socket from a `FakeSource` that the test fills. `FakeClient`
keeps pages in a dict.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from harness.clock import seconds
from peercache_client import Status
from peercached.admin.server import AdminServer, Relay


class FakeSource:
    """Operations (peercached/operations.py) with answers that the test sets."""

    def __init__(self) -> None:
        self.document: dict[str, Any] = {}
        self.located: dict[str, Any] = {}
        self.ring_document: dict[str, Any] = {}
        self.traced: dict[str, Any] = {}
        self.settings: dict[str, Any] = {}
        self.reloaded: tuple[list[str], list[str], list[str]] = ([], [], [])
        self.evicted = (0, 0)
        self.listed: list[dict[str, Any]] = []
        self.pinned: tuple[list[str], str] = ([], "")
        self.moved: dict[str, Any] = {}
        self.unreached: list[str] = []
        self.seen: list[dict[str, Any]] = []
        self.asked: list[tuple[Any, ...]] = []
        self.error: Exception | None = None
        self.hangs = False

    def status(self) -> dict[str, Any]:
        if self.error is not None:
            raise self.error
        return self.document

    async def locate(self, namespace: str, key: bytes) -> dict[str, Any]:
        self.asked.append(("locate", namespace, key))
        if self.error is not None:
            raise self.error
        if self.hangs:
            await asyncio.Event().wait()
        return self.located

    def drain(self, bytes_max: int, seconds: float, stay: bool) -> None:
        self.asked.append(("drain", bytes_max, seconds, stay))

    async def undrain(self) -> None:
        self.asked.append(("undrain",))

    def ring(self) -> dict[str, Any]:
        return self.ring_document

    def config(self) -> dict[str, Any]:
        return {"settings": self.settings}

    def events(self, after: int) -> dict[str, Any]:
        return {"events": [one for one in self.seen if one["number"] > after]}

    def curves(self) -> dict[str, Any]:
        return {"node_id": self.document.get("node", {}).get("id", "")}

    async def process(self) -> dict[str, Any]:
        return {"node_id": self.document.get("node", {}).get("id", "")}

    async def trace(self, namespace: str, key: bytes, seconds: float) -> dict[str, Any]:
        self.asked.append(("trace", namespace, key))
        return self.traced

    def evict(
        self, namespace: str, keys: list[bytes], coldest_bytes: int, everything: bool
    ) -> dict[str, Any]:
        self.asked.append(("evict", namespace, keys, coldest_bytes, everything))
        return dict(zip(("pages", "bytes"), self.evicted, strict=True), node_id="here")

    async def pages(self, order: str, limit: int, namespace: str) -> dict[str, Any]:
        self.asked.append(("pages", order, limit, namespace))
        return {"node_id": "here", "order": order, "pages": self.listed}

    async def pin(
        self,
        namespace: str,
        keys: list[bytes],
        seconds: float,
        prefix: bool,
        here: bool,
        timeout_s: float,
    ) -> dict[str, Any]:
        self.asked.append(("pin", namespace, keys, seconds, prefix, here))
        return dict(zip(("outcomes", "why_not"), self.pinned, strict=True))

    def unpin(self, namespace: str, keys: list[bytes], timeout_s: float) -> dict[str, Any]:
        self.asked.append(("unpin", namespace, keys))
        return dict(zip(("outcomes", "why_not"), self.pinned, strict=True))

    async def move(
        self, namespace: str, keys: list[bytes], to: str, timeout_s: float
    ) -> dict[str, Any]:
        self.asked.append(("move", namespace, keys, to))
        return {"node_id": "here", **self.moved}

    def reload(self) -> dict[str, Any]:
        self.asked.append(("reload",))
        return dict(zip(("changed", "needs_restart", "problems"), self.reloaded, strict=True))

    def clear(self, namespace: str) -> dict[str, Any]:
        self.asked.append(("clear", namespace))
        return {"unreached": self.unreached}


@contextmanager
def serving(path: Path, source: FakeSource, relay: Relay | None = None) -> Iterator[AdminServer]:
    """Runs the Admin service on `path`, on an event loop of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    def run(coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, loop).result(timeout=seconds(30))

    async def start() -> AdminServer:
        server = AdminServer(str(path), source, relay)
        await server.start()
        return server

    try:
        server = run(start())
        try:
            yield server
        finally:
            run(server.stop())
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@contextmanager
def listening(path: Path) -> Iterator[None]:
    """A socket that takes connections and never answers, like a stopped daemon."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(16)
        yield


class FakeClient:
    """A stand-in for the worker's client that keeps pages in a dict."""

    def __init__(self, pages: dict[bytes, bytes]) -> None:
        self.pages = pages
        self.trouble = Status.ok  # if not ok, the status of every set and remove

    def __enter__(self) -> FakeClient:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    @staticmethod
    def alloc(size: int) -> Any:
        return SimpleNamespace(view=memoryview(bytearray(size)))

    def batch_set(
        self, keys: list[bytes], region: Any, offsets: list[int], length: int
    ) -> list[Status]:
        if self.trouble:
            for key, at in zip(keys, offsets, strict=True):
                self.pages[key] = bytes(region.view[at : at + length])
        return [self.trouble] * len(keys)

    def batch_get(
        self, keys: list[bytes], region: Any, offsets: list[int], length: int
    ) -> list[Status]:
        pages = [self.pages.get(key, b"") for key in keys]
        for page, at in zip(pages, offsets, strict=True):
            if len(page) == length:
                region.view[at : at + length] = page
        return [Status.ok if len(page) == length else Status.absent for page in pages]

    def presence(self, keys: list[bytes]) -> list[Status]:
        return [Status.ok if key in self.pages else Status.absent for key in keys]

    def remove(self, keys: list[bytes]) -> list[Status]:
        if not self.trouble:
            return [self.trouble] * len(keys)
        return [
            Status.ok if self.pages.pop(key, None) is not None else Status.absent for key in keys
        ]
