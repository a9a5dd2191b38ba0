"""Stores: chunks of a request are gathered until they are worth a transfer."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import NamedTuple

from peercache_client.connector.agreement import NOT_YET, Minimum, alone, reached
from peercache_client.connector.connector import RemoteKVConnector
from peercache_client.connector.plan import PageToTokens, make_plan

log = logging.getLogger("peercache_client")


class Stored(NamedTuple):
    """These pages may be used for something else. Those of tokens `begin` to `end` are stored on
    all ranks."""

    req_id: str
    begin: int
    end: int
    pages: list[int]


@dataclass
class _Gathered:
    mapping: list[tuple[int, slice]] = field(default_factory=list)
    dropped: bool = False  # what comes behind a hole is of no use to anybody


@dataclass
class _Store:
    req_id: str
    begin: int
    tokens: int
    pages: list[int]
    future: Future[int]


class AsyncKVStoreQueue:
    """One for each rank, used by its scheduler thread alone."""

    def __init__(
        self,
        connector: RemoteKVConnector,
        *,
        threshold_tokens: int = 256,
        in_flight_tokens_max: int = 65536,
        minimum: Minimum = alone,
    ) -> None:
        """A transfer begins with `threshold_tokens`, or with a request's last chunk. What would
        make more than `in_flight_tokens_max`, gathered ones included, is dropped."""
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
        """Transfers that are not done."""
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
        """The request's next pages, all of them full. They must stay as they are until `poll` has
        named them. False: they were dropped, and nothing touches them."""
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
        """Whether these are full pages one behind the other."""
        try:
            plan = make_plan(mapping, tokens, self._page_size, sys.maxsize, self._boundary_tokens)
        except (ValueError, TypeError) as error:
            log.warning("request %s is not stored any further: %s", req_id, error)
            return False
        if len(plan.pages) != len(mapping):
            log.warning("request %s is not stored any further: a page is not full", req_id)
            return False
        return True

    def abandon(self, req_id: str) -> list[int]:
        """The request ends without a last chunk. Its gathered pages, which nothing touches any
        more; those whose transfer has begun come with `poll`. `finish_req` of the connector, with
        `drop_stores`, on all ranks, makes them come sooner."""
        gathered = self._gathered.pop(req_id, _Gathered())
        self.in_flight_tokens -= self._page_size * len(gathered.mapping)
        return [page for page, _ in gathered.mapping]

    def poll(self) -> list[Stored]:
        """Transfers that are done, on all ranks. The ranks must all call it, equally often."""
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
