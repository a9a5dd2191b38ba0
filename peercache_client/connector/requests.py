"""What the connector keeps for each request: its hashes, and what is under way for it."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Final

from peercache_client.connector.page_chain import PageChain

# Requests that nobody finishes must not fill the memory. Forgetting one costs hashing it again.
_REQUESTS_MAX: Final = 4096


class Request:
    """Thread safe."""

    def __init__(self, page_size: int, *, pairs: bool = False) -> None:
        self.chain = PageChain(page_size, pairs=pairs)
        self.finished = threading.Event()  # nothing of it begins any more
        self._lock = threading.Lock()
        self._under_way = 0
        self._silent: Future[None] = Future()

    @property
    def idle(self) -> bool:
        return self._under_way == 0

    def begin(self) -> None:
        with self._lock:
            self._under_way += 1

    def end(self) -> None:
        with self._lock:
            self._under_way -= 1
            silent = self._under_way == 0 and self.finished.is_set()
        if silent:
            self._silent.set_result(None)

    def finish(self) -> Future[None]:
        """Done when nothing touches the request's pages any more."""
        with self._lock:
            self.finished.set()
            silent = self._under_way == 0
        if silent:
            self._silent.set_result(None)
        return self._silent


class Requests:
    """Thread safe."""

    def __init__(self, page_size: int, *, pairs: bool = False) -> None:
        """`pairs`: hashes are those of token pairs."""
        self._page_size = page_size
        self._pairs = pairs
        self._lock = threading.Lock()
        self._known: OrderedDict[str, Request] = OrderedDict()

    def begin(self, req_id: str) -> Request:
        """The request, with one more thing under way: `end` it."""
        with self._lock:
            request = self._known.get(req_id)
            if request is None:
                if len(self._known) >= _REQUESTS_MAX:
                    self._forget_one()
                request = self._known[req_id] = Request(self._page_size, pairs=self._pairs)
            self._known.move_to_end(req_id)
            request.begin()
            return request

    @contextmanager
    def use(self, req_id: str) -> Iterator[Request]:
        request = self.begin(req_id)
        try:
            yield request
        finally:
            request.end()

    def finish(self, req_id: str) -> Future[None]:
        with self._lock:
            request = self._known.pop(req_id, None)
        if request is None:
            request = Request(self._page_size)
        return request.finish()

    def finish_all(self) -> list[Future[None]]:
        with self._lock:
            known = list(self._known.values())
            self._known.clear()
        return [request.finish() for request in known]

    def __len__(self) -> int:
        return len(self._known)

    def _forget_one(self) -> None:
        oldest = next((req_id for req_id, each in self._known.items() if each.idle), None)
        if oldest is not None:
            del self._known[oldest]
