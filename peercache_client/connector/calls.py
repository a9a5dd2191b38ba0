"""Running calls: their number is bounded, they have their own threads, and return futures."""

from __future__ import annotations

import os
import threading
from array import array
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar
from weakref import WeakSet

from peercache_client.connector.metadata import ConnectorMetadata
from peercache_client.connector.requests import Call, Requests

Reached = TypeVar("Reached", bound=int)


class ConnectorBusy(RuntimeError):
    """`calls_max` calls are already running; retry later."""


class Calls:
    """Thread safe."""

    def __init__(self, metadata: ConnectorMetadata, requests: Requests) -> None:
        self._calls_max = metadata.calls_max
        self._threads = metadata.threads
        self._requests = requests
        self._closed = False
        self._thread = threading.local()  # has `own` on the threads of our pools
        self._begin()
        _all.add(self)

    def _begin(self) -> None:
        self._room = threading.BoundedSemaphore(self._calls_max)
        # Separate pools: a prompt waits for its retrieve, which must not queue behind stores.
        self._storing, self._retrieving = (
            ThreadPoolExecutor(self._threads, f"peercache-{what}", self._mark)
            for what in ("store", "retrieve")
        )

    def _mark(self) -> None:
        self._thread.own = True

    def begin_in_child(self) -> None:
        """A forked child has no threads and no calls of its parent."""
        self._requests.forget_all()
        self._begin()

    def submit(
        self,
        req_id: str,
        tokens: array[int],
        work: Callable[[Call, array[int]], Reached],
        *,
        storing: bool,
    ) -> Future[Reached]:
        """Runs `work` for the request. Raises ConnectorBusy, or RuntimeError after close; in both
        cases nothing has begun."""
        if self._closed:
            raise RuntimeError("the connector is closed")
        call = self._requests.begin(req_id, storing=storing)
        if not self._room.acquire(blocking=False):
            self._requests.end(call)
            raise ConnectorBusy(f"{self._calls_max} calls are under way")

        def ended(_: Future[Reached] | None = None) -> None:
            self._room.release()
            self._requests.end(call)

        executor = self._storing if storing else self._retrieving
        try:
            future = executor.submit(work, call, tokens)
        except RuntimeError:  # closed meanwhile
            ended()
            raise
        future.add_done_callback(ended)
        return future

    def close(self) -> None:
        """Stops all calls, including stores, after their current chunk. Waits for them, unless it
        is called on one of their threads: in a callback of a future."""
        self._closed = True
        waits = not hasattr(self._thread, "own")
        for done in self._requests.finish_all():
            if waits:
                done.result()
        self._storing.shutdown(wait=waits)
        self._retrieving.shutdown(wait=waits)


_all: WeakSet[Calls] = WeakSet()


def _begin_in_child() -> None:
    for calls in list(_all):
        calls.begin_in_child()


os.register_at_fork(after_in_child=_begin_in_child)


def failed(error: Exception) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_exception(error)
    return future
