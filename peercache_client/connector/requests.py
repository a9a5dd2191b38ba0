"""The state of each request: its page hashes and its running calls."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Final

from peercache_client.connector.page_chain import PageChain

# Bounds memory if the engine never finishes requests. Forgetting one costs hashing it again.
_REQUESTS_MAX: Final = 4096


class Call:
    """One store, retrieve or lookup of a request, from submission to end."""

    def __init__(self, req_id: str, chain: PageChain, *, storing: bool) -> None:
        self.req_id = req_id
        self.chain = chain
        self.storing = storing
        self.stopped = threading.Event()  # no further chunk begins


class _Request:
    def __init__(self, chain: PageChain) -> None:
        self.chain = chain
        self.calls: set[Call] = set()
        # The request is forgotten when its last call ends, even if its name was reused meanwhile.
        # Then the new request is hashed once more.
        self.finished = False
        # The futures of `finish`, each with the calls that it still waits for.
        self.waiting: list[tuple[set[Call], Future[None]]] = []


class Requests:
    """Thread safe."""

    def __init__(self, page_size: int, *, pairs: bool = False) -> None:
        """`pairs`: hash token pairs (EAGLE)."""
        self._page_size = page_size
        self._pairs = pairs
        self.forget_all()

    def forget_all(self) -> None:
        """Only while no other thread uses it: in a forked child."""
        self._lock = threading.Lock()
        self._known: OrderedDict[str, _Request] = OrderedDict()

    def begin(self, req_id: str, *, storing: bool) -> Call:
        """Starts a call of the request; the caller must `end` it. A finished name may be reused."""
        with self._lock:
            request = self._known.get(req_id)
            if request is None:
                if len(self._known) >= _REQUESTS_MAX:
                    self._forget_one()
                request = _Request(PageChain(self._page_size, pairs=self._pairs))
                self._known[req_id] = request
            self._known.move_to_end(req_id)
            call = Call(req_id, request.chain, storing=storing)
            request.calls.add(call)
            return call

    def end(self, call: Call) -> None:
        with self._lock:
            request = self._known[call.req_id]
            request.calls.discard(call)
            for calls, _ in request.waiting:
                calls.discard(call)
            done = [future for calls, future in request.waiting if not calls]
            request.waiting = [each for each in request.waiting if each[0]]
            if request.finished and not request.calls:
                del self._known[call.req_id]
        for future in done:  # without the lock, because callbacks may call this object
            future.set_result(None)

    @contextmanager
    def use(self, req_id: str) -> Iterator[Call]:
        """Context manager for a call that stores nothing."""
        call = self.begin(req_id, storing=False)
        try:
            yield call
        finally:
            self.end(call)

    def finish(self, req_id: str, *, drop_stores: bool) -> Future[None]:
        """Stops the running calls; stores only with `drop_stores`. The future is done when nothing
        uses the request's pages any more."""
        done: Future[None] = Future()
        # Forbid cancelling (asyncio cancels on a timeout): set_result would then raise.
        done.set_running_or_notify_cancel()
        with self._lock:
            request = self._known.get(req_id)
            if request is not None and request.calls:
                for call in request.calls:
                    if drop_stores or not call.storing:
                        call.stopped.set()
                request.finished = True
                request.waiting.append((set(request.calls), done))
                return done
            if request is not None:
                del self._known[req_id]
        done.set_result(None)
        return done

    def finish_all(self) -> list[Future[None]]:
        """Stops everything, including stores."""
        with self._lock:
            known = list(self._known)
        return [self.finish(req_id, drop_stores=True) for req_id in known]

    def __len__(self) -> int:
        return len(self._known)

    def _forget_one(self) -> None:
        oldest = next((req_id for req_id, each in self._known.items() if not each.calls), None)
        if oldest is not None:
            del self._known[oldest]
