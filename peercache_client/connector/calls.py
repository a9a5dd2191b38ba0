"""Calls under way: bounded, on threads of their own, with futures that tell their end."""

from __future__ import annotations

import threading
from array import array
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from peercache_client.connector.metadata import ConnectorMetadata
from peercache_client.connector.requests import Request, Requests
from peercache_client.page_hash import words


class ConnectorBusy(RuntimeError):
    """More calls are under way than `calls_max`: come again later."""


class Calls:
    """Thread safe. Nothing raises: what is wrong is the exception of the future."""

    def __init__(self, metadata: ConnectorMetadata, requests: Requests) -> None:
        self._calls_max = metadata.calls_max
        self._requests = requests
        self._room = threading.BoundedSemaphore(metadata.calls_max)
        self._closed = False
        # Apart, so that a prompt does not wait behind what others write.
        self._storing = ThreadPoolExecutor(metadata.threads, "peercache-store")
        self._retrieving = ThreadPoolExecutor(metadata.threads, "peercache-retrieve")

    def submit(
        self,
        req_id: str,
        tokens_list: Sequence[int],
        work: Callable[[Request, array[int]], int],
        *,
        storing: bool,
    ) -> Future[int]:
        """Runs `work` for the request, with a copy of the tokens: the engine's own list grows."""
        if self._closed:
            return failed(RuntimeError("the connector is closed"))
        if not self._room.acquire(blocking=False):
            return failed(ConnectorBusy(f"{self._calls_max} calls are under way"))
        request = self._requests.begin(req_id)

        def ended(_: Future[int]) -> None:
            self._room.release()
            request.end()

        try:
            executor = self._storing if storing else self._retrieving
            future = executor.submit(work, request, words(tokens_list))
        except Exception as error:  # no such token, or closed
            future = failed(error)
        future.add_done_callback(ended)
        return future

    def close(self) -> None:
        """Ends all requests, after the chunks under way."""
        self._closed = True
        for silent in self._requests.finish_all():
            silent.result()
        self._storing.shutdown()
        self._retrieving.shutdown()


def failed(error: Exception) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_exception(error)
    return future
