"""Running calls: their number is bounded, they have their own threads, and return futures."""

from __future__ import annotations

import threading
from array import array
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from peercache_client.connector.metadata import ConnectorMetadata
from peercache_client.connector.requests import Call, Requests

Reached = TypeVar("Reached", bound=int)


class ConnectorBusy(RuntimeError):
    """`calls_max` calls are already running; retry later."""


class Calls:
    """Thread safe."""

    def __init__(self, metadata: ConnectorMetadata, requests: Requests) -> None:
        self._calls_max = metadata.calls_max
        self._requests = requests
        self._room = threading.BoundedSemaphore(metadata.calls_max)
        self._closed = False
        # Separate pools: a retrieve, for which a prompt waits, must not queue behind stores.
        self._storing = ThreadPoolExecutor(metadata.threads, "peercache-store")
        self._retrieving = ThreadPoolExecutor(metadata.threads, "peercache-retrieve")

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
        """Stops all calls, including stores, after their current chunk."""
        self._closed = True
        for done in self._requests.finish_all():
            done.result()
        self._storing.shutdown()
        self._retrieving.shutdown()


def failed(error: Exception) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_exception(error)
    return future
