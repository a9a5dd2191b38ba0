"""Prefetches: what a waiting request has in the cache is brought before it is scheduled."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import NamedTuple

from peercache_client.connector.agreement import NOT_YET, Minimum, alone, reached
from peercache_client.connector.connector import RemoteKVConnector

# So many pages for a request; None when there is no room, and the request goes without.
Allocate = Callable[[str, int], Sequence[int] | None]


class Prefetched(NamedTuple):
    """The KV of tokens `begin` to `end` is in the first of `pages`, on all ranks. The other pages
    are the caller's to free."""

    req_id: str
    begin: int
    end: int
    pages: list[int]


@dataclass
class _Entry:
    req_id: str
    tokens: Sequence[int]
    begin: int  # of the page with the first token that the engine has no KV of
    asked: Future[int]  # how far the cache reaches; later: how far the pages are filled
    salt: dict[str, str | None]
    end: int = 0  # how far the cache reaches, on all ranks
    pages: list[int] = field(default_factory=list)
    stopped: bool = False


class AsyncKVPrefetchQueue:
    """One for each rank, used by its scheduler thread alone."""

    def __init__(
        self,
        connector: RemoteKVConnector,
        allocate: Allocate,
        *,
        threshold_tokens: int = 256,
        in_flight_tokens_max: int = 65536,
        minimum: Minimum = alone,
    ) -> None:
        """Fewer hits than `threshold_tokens` are not worth a transfer; of more than
        `in_flight_tokens_max` at once, requests wait for those before them."""
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
        """`computed_tokens`: the engine has the KV of so many tokens, from the first on. The
        prefetch begins with the page of the next token. Should the engine have a part of this
        page, then it uses the new one, which holds the KV of all its tokens.

        False, and no result will come, for a request that is in the queue, or that has fewer
        tokens than the threshold from the begin of this page on. ValueError: a negative number."""
        if computed_tokens < 0:
            raise ValueError(f"computed_tokens is {computed_tokens}: 0 or more")
        size = self._page_size
        begin = computed_tokens // size * size
        if req_id in self or len(tokens_list) - begin < max(self._threshold_tokens, size):
            return False
        salt = {"extra_key": extra_key, "cache_salt": cache_salt}
        asked = self._connector.num_external_matched_tokens_async(req_id, tokens_list, **salt)
        self._matching[req_id] = _Entry(req_id, tokens_list, begin, asked, salt)
        return True

    def stop(self, req_id: str) -> None:
        """The request is to be scheduled now: its result comes with one of the next polls. Stores
        of the request go on."""
        for entry in (*self._matching.values(), *self._waiting, *self._retrieving.values()):
            if entry.req_id == req_id and not entry.stopped:
                entry.stopped = True
                self._connector.finish_req(req_id)

    def poll(self) -> list[Prefetched]:
        """Those that are done, on all ranks. The ranks must all call it, equally often."""
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
        """In the order they came, as far as there is room: a large one is not overtaken."""
        nothing = []
        while self._waiting:
            entry = self._waiting[0]
            tokens = entry.end - entry.begin
            if entry.stopped or tokens < self._threshold_tokens:
                nothing.append(Prefetched(entry.req_id, entry.begin, entry.begin, []))
                self._waiting.popleft()
                continue
            # One that is larger than all the room goes when it is alone.
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
            # Should the other ranks have room: they must learn of it as of any other miss.
            entry.asked = Future()
            entry.asked.set_result(entry.begin)
            return
        entry.pages = list(pages)
        mapping = [
            (page, slice(start, start + size))
            for page, start in zip(entry.pages, range(entry.begin, entry.end, size), strict=True)
        ]
        entry.asked, _ = self._connector.retrieve_kv_async(
            entry.req_id, mapping, entry.tokens, **entry.salt
        )
