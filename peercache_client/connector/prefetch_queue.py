"""Prefetches the cached pages of a waiting request before it is scheduled."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from peercache_client.connector.agreement import NOT_YET, Minimum, alone, reached
from peercache_client.connector.connector import RemoteKVConnector
from peercache_client.connector.interface import Moved

# Allocates that many pages for a request. None: no room, so the request is not prefetched.
Allocate = Callable[[str, int], Sequence[int] | None]


class Prefetched(NamedTuple):
    """The first (`end` - `begin`) / page size of `pages` hold the KV of the tokens from `begin` up
    to `end`, on all ranks. The caller must free the other pages."""

    req_id: str
    begin: int
    end: int
    pages: list[int]


@dataclass
class _Entry:
    req_id: str
    tokens: Sequence[int]
    begin: int  # start of the page with the first token that the engine has no KV of
    asked: Future[int] | Future[Moved]  # the lookup, later the retrieve
    salt: dict[str, Any]
    end: int = 0  # how far the cache reaches on all ranks
    pages: list[int] = field(default_factory=list)
    stopped: bool = False


class AsyncKVPrefetchQueue:
    """One for each rank. Only the rank's scheduler thread may use it."""

    def __init__(
        self,
        connector: RemoteKVConnector,
        allocate: Allocate,
        *,
        threshold_tokens: int = 256,
        in_flight_tokens_max: int = 65536,
        minimum: Minimum = alone,
    ) -> None:
        """Hits of fewer than `threshold_tokens` are not transferred. While `in_flight_tokens_max`
        tokens are in flight, later requests wait."""
        self._connector = connector
        self._page_size = connector.metadata.page_size
        self._allocate = allocate
        self._threshold_tokens = threshold_tokens
        self._in_flight_tokens_max = in_flight_tokens_max
        self._minimum = minimum
        self._matching: dict[str, _Entry] = {}
        self._waiting: deque[_Entry] = deque()
        self._retrieving: dict[str, _Entry] = {}
        self.in_flight_tokens = 0

    def __len__(self) -> int:
        return len(self._matching) + len(self._waiting) + len(self._retrieving)

    def __contains__(self, req_id: object) -> bool:
        return (
            req_id in self._matching
            or req_id in self._retrieving
            or any(entry.req_id == req_id for entry in self._waiting)
        )

    def add(
        self,
        req_id: str,
        tokens_list: Sequence[int],
        computed_tokens: int = 0,
        *,
        extra_key: str | None = None,
        cache_salt: str | None = None,
    ) -> bool:
        """`computed_tokens`: how many leading tokens already have KV in the engine. The prefetch
        begins with the page of the next token. If the engine has a part of this page, it must use
        the new page, which holds the KV of all its tokens.

        Returns False, and no result will come, if the request is queued already, or has fewer
        tokens than the threshold from this page on. ValueError: a negative number.
        """
        if computed_tokens < 0:
            raise ValueError(f"computed_tokens is {computed_tokens}: 0 or more")
        size = self._page_size
        begin = computed_tokens // size * size
        if req_id in self or len(tokens_list) - begin < max(self._threshold_tokens, size):
            return False
        salt: dict[str, Any] = {"extra_key": extra_key, "cache_salt": cache_salt}
        asked = self._connector.num_external_matched_tokens_async(req_id, tokens_list, **salt)
        self._matching[req_id] = _Entry(req_id, tokens_list, begin, asked, salt)
        return True

    def stop(self, req_id: str) -> None:
        """The request will be scheduled now; one of the next polls returns its result. Its stores
        continue."""
        for entry in (*self._matching.values(), *self._waiting, *self._retrieving.values()):
            if entry.req_id == req_id and not entry.stopped:
                entry.stopped = True
                self._connector.finish_req(req_id)

    def poll(self) -> list[Prefetched]:
        """Returns the prefetches that all ranks have done. All ranks must call it equally often."""
        if not self:
            return []
        entries = [*self._matching.values(), *self._retrieving.values()]
        agreed = self._minimum([reached(entry.asked, entry.begin) for entry in entries])
        done = []
        for entry, value in zip(entries, agreed, strict=True):
            if value == NOT_YET:
                continue
            if entry.req_id in self._matching:
                del self._matching[entry.req_id]
                entry.end = value
                self._waiting.append(entry)
            else:
                done.append(self._retrieved(entry, value))
        return done + self._start_waiting()

    def _retrieved(self, entry: _Entry, value: int) -> Prefetched:
        del self._retrieving[entry.req_id]
        self.in_flight_tokens -= entry.end - entry.begin
        return Prefetched(entry.req_id, entry.begin, value, entry.pages)

    def _start_waiting(self) -> list[Prefetched]:
        """Starts requests in order while there is room. Smaller requests never overtake a large
        one."""
        nothing = []
        while self._waiting:
            entry = self._waiting[0]
            tokens = entry.end - entry.begin
            if entry.stopped or tokens < self._threshold_tokens:
                nothing.append(Prefetched(entry.req_id, entry.begin, entry.begin, []))
                self._waiting.popleft()
                continue
            # A request larger than the limit starts when nothing else is in flight.
            if (
                self.in_flight_tokens
                and self.in_flight_tokens + tokens > self._in_flight_tokens_max
            ):
                break
            self._waiting.popleft()
            self._retrieve(entry)
            self._retrieving[entry.req_id] = entry
            self.in_flight_tokens += tokens
        return nothing

    def _retrieve(self, entry: _Entry) -> None:
        size = self._page_size
        pages = self._allocate(entry.req_id, (entry.end - entry.begin) // size)
        if pages is None:
            # The other ranks may have room. Report a miss, so that the minimum drops it on all of
            # them.
            missed: Future[int] = Future()
            missed.set_result(entry.begin)
            entry.asked = missed
            return
        entry.pages = list(pages)
        mapping = [
            (page, slice(start, start + size))
            for page, start in zip(entry.pages, range(entry.begin, entry.end, size), strict=True)
        ]
        entry.asked = self._connector.retrieve_kv_async(
            entry.req_id, mapping, entry.tokens, **entry.salt
        )
