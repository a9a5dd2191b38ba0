"""Collects the pages of a request until a transfer is worthwhile, then stores them."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import NamedTuple

from peercache_client.connector.agreement import NOT_YET, Minimum, alone, reached
from peercache_client.connector.connector import RemoteKVConnector
from peercache_client.connector.interface import Moved
from peercache_client.connector.plan import PageToTokens, make_plan
from peercache_client.notes import say


class Stored(NamedTuple):
    """The pages may be reused. The pages of tokens `begin` to `end` are stored on all ranks."""

    req_id: str
    begin: int
    end: int
    pages: list[int]


@dataclass
class _Gathered:
    mapping: list[tuple[int, slice]] = field(default_factory=list)
    dropped: bool = False  # a page was lost, so later pages of the request are useless


@dataclass
class _Store:
    req_id: str
    begin: int
    tokens: int
    pages: list[int]
    future: Future[Moved]


class AsyncKVStoreQueue:
    """One for each rank. Only the rank's scheduler thread may use it."""

    def __init__(
        self,
        connector: RemoteKVConnector,
        *,
        threshold_tokens: int = 256,
        in_flight_tokens_max: int = 65536,
        minimum: Minimum = alone,
    ) -> None:
        """A transfer begins after `threshold_tokens`, or with a request's last chunk. Pages that
        would exceed `in_flight_tokens_max`, which includes collected ones, are dropped."""
        self._connector = connector
        self._page_size = connector.metadata.page_size
        self._boundary_tokens = connector.metadata.boundary_tokens
        self._threshold_tokens = threshold_tokens
        self._in_flight_tokens_max = in_flight_tokens_max
        self._minimum = minimum
        self._gathered: dict[str, _Gathered] = {}
        self._stores: list[_Store] = []
        self.in_flight_tokens = 0
        self.dropped_tokens = 0

    def __len__(self) -> int:
        """The number of unfinished transfers."""
        return len(self._stores)

    def add(
        self,
        req_id: str,
        page_to_tokens_mapping: PageToTokens,
        tokens_list: Sequence[int],
        *,
        last: bool = False,
        extra_key: str | None = None,
        cache_salt: str | None = None,
    ) -> bool:
        """Adds the request's next pages, all of them full. They must stay unchanged until `poll`
        returns them. False: the pages were dropped, and nothing uses them."""
        gathered = self._gathered.setdefault(req_id, _Gathered())
        mapping = list(page_to_tokens_mapping)
        tokens = self._page_size * len(mapping)
        taken = (
            not gathered.dropped
            and self.in_flight_tokens + tokens <= self._in_flight_tokens_max
            and self._fits(req_id, gathered.mapping + mapping, len(tokens_list))
        )
        if taken:
            gathered.mapping += mapping
            self.in_flight_tokens += tokens
        else:
            gathered.dropped = True
            self.dropped_tokens += tokens
        enough = self._page_size * len(gathered.mapping) >= self._threshold_tokens
        if gathered.mapping and (last or enough or gathered.dropped):
            future, _ = self._connector.store_kv_async(
                req_id, gathered.mapping, tokens_list, extra_key=extra_key, cache_salt=cache_salt
            )
            pages = [page for page, _ in gathered.mapping]
            begin = gathered.mapping[0][1].start or 0
            self._stores.append(_Store(req_id, begin, self._page_size * len(pages), pages, future))
            gathered.mapping = []
        if last:
            del self._gathered[req_id]
        return taken

    def _fits(self, req_id: str, mapping: PageToTokens, tokens: int) -> bool:
        """Whether these are full pages, in sequence and without gaps."""
        try:
            plan = make_plan(mapping, tokens, self._page_size, sys.maxsize, self._boundary_tokens)
        except (ValueError, TypeError) as error:
            say(logging.WARNING, "stopped storing request %s: %s", req_id, error)
            return False
        if len(plan.pages) != len(mapping):
            say(logging.WARNING, "stopped storing request %s: one of its pages is not full", req_id)
            return False
        return True

    def abandon(self, req_id: str) -> list[int]:
        """Ends a request without a last chunk. Returns its collected pages, which nothing uses any
        more. `poll` returns the pages of transfers that have begun. To get those sooner, call the
        connector's `finish_req` with `drop_stores` on all ranks."""
        gathered = self._gathered.pop(req_id, _Gathered())
        self.in_flight_tokens -= self._page_size * len(gathered.mapping)
        return [page for page, _ in gathered.mapping]

    def poll(self) -> list[Stored]:
        """Returns the transfers that all ranks have done. All ranks must call it equally often."""
        if not self._stores:
            return []
        agreed = self._minimum([reached(store.future, store.begin) for store in self._stores])
        done = []
        left = []
        for store, value in zip(self._stores, agreed, strict=True):
            if value == NOT_YET:
                left.append(store)
                continue
            self.in_flight_tokens -= store.tokens
            done.append(Stored(store.req_id, store.begin, value, store.pages))
        self._stores = left
        return done
