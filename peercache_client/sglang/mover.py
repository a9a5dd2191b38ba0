"""Sets and gets pages of several pools with one request to the daemon."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from peercache_client import Client, Region, Status
from peercache_client.block_hashes import names
from peercache_client.identity import Topology
from peercache_client.packed_keys import concatenate
from peercache_client.rate_limited_log import RateLimitedLog
from peercache_client.sglang.outcomes import explain, whole_pages
from peercache_client.sglang.page_forms import PageForm
from peercache_client.sglang.placement import Place
from peercache_client.sglang.transfer_metrics import TransferMetrics
from peercache_client.worth import Worth


class Pages(NamedTuple):
    pool: str
    form: PageForm
    hashes: Sequence[str]
    indices: Any  # form.indices_per_page per hash


class Mover:
    """Thread safe. Returns one list per pool, with one bool per page: True if the daemon stored
    every byte of it (set), or every byte is in place (get)."""

    def __init__(
        self,
        client: Client,
        timeout_s: float,
        metrics: TransferMetrics,
        log_rarely: RateLimitedLog,
        worth: Worth,
        topology: Topology,
    ) -> None:
        self._topology = topology
        self._client = client
        self._worth = worth
        self._timeout_s = timeout_s
        self._metrics = metrics
        self._log_rarely = log_rarely

    def set(self, wanted: Sequence[Pages], parent: str | None) -> list[list[bool]]:
        self._worth.stored(wanted[0].hashes)
        places = [self._place(pages, pages.form.source) for pages in wanted]
        began = time.monotonic()
        statuses = self._move(
            self._client.batch_set,
            self._client.batch_set_buffers,
            places,
            parent,
            names(
                self._topology,
                (
                    (one.pool, one.hashes, len(one.form.suffixes), one.form.indices_per_page)
                    for one, place in zip(wanted, places, strict=True)
                    if place is not None and place.keys
                ),
            ),
        )
        took_s = time.monotonic() - began
        results = self._judge("set", wanted, places, statuses)
        self._metrics.backed_up(*_amount(wanted, places), took_s)
        return results

    def get(self, wanted: Sequence[Pages], parent: str | None) -> list[list[bool]]:
        hashes = wanted[0].hashes
        limit_s = self._worth.give_up_s(hashes)
        places = [self._place(pages, pages.form.target) for pages in wanted]
        began = time.monotonic()
        statuses = self._move(
            partial(self._client.batch_get, give_up_s=limit_s),
            partial(self._client.batch_get_buffers, give_up_s=limit_s),
            places,
            parent,
        )
        took_s = time.monotonic() - began
        late = Status.deadline in statuses and limit_s is not None
        results = self._judge("got", wanted, places, statuses)
        self._worth.loaded(hashes, results[0].count(False) if late else 0)
        for pages, place, ok in zip(wanted, places, results, strict=True):
            if place is not None:
                pages.form.arrived(place, pages.indices, ok)
        self._metrics.prefetched(*_amount(wanted, places), took_s)
        return results

    def _place(self, pages: Pages, find: Any) -> Place | None:
        """Locates the pages. If the pool's indices do not fit, logs a line and returns None."""
        try:
            if len(pages.indices) != len(pages.hashes) * pages.form.indices_per_page:
                raise ValueError(
                    f"{len(pages.indices)} indices for {len(pages.hashes)} pages of "
                    f"{pages.form.indices_per_page}"
                )
            place: Place = find(pages.hashes, pages.indices)
            return place
        except Exception as error:
            self._log_rarely.say(
                f"place {pages.pool}", f"pool {pages.pool}: no page was moved: {error}", trace=True
            )
            return None

    def _move(
        self,
        move: Any,
        move_buffers: Any,
        places: Sequence[Place | None],
        parent: str | None,
        more: dict[str, Any] | None = None,
    ) -> list[Status]:
        found = [place for place in places if place is not None and place.keys]
        if not found:
            return []
        keys = concatenate([place.keys for place in found])
        if len(found) == 1:
            offsets, lengths = found[0].offsets, found[0].lengths
        else:
            offsets = [offset for place in found for offset in place.offsets]
            lengths = [length for place in found for length in place.lengths]
        options = {"parent": parent, "timeout_s": self._timeout_s, **(more or {})}
        statuses: list[Status]
        if any(place.views for place in found):
            views = [view for place in found for view in place.as_views()]
            statuses = move_buffers(list(keys), views, **options)
            return statuses
        statuses = move(keys, _regions(found), offsets, lengths, **options)
        return statuses

    def _judge(
        self,
        done: str,
        wanted: Sequence[Pages],
        places: Sequence[Place | None],
        statuses: Sequence[Status],
    ) -> list[list[bool]]:
        results = []
        begin = 0
        for pages, place in zip(wanted, places, strict=True):
            if place is None:
                results.append([False] * len(pages.hashes))
                continue
            end = begin + len(place.keys)
            of_pool = statuses[begin:end]
            begin = end
            results.append(whole_pages(of_pool, len(pages.hashes), len(pages.form.suffixes)))
            explain(self._log_rarely, done, pages.pool, results[-1], of_pool)
        return results


def _regions(places: Sequence[Place]) -> Region | list[Region]:
    first = places[0].regions
    if len(first) == 1 and all(place.regions == first for place in places):
        return first[0]
    return [region for place in places for region in place.region_of_each()]


def _amount(wanted: Sequence[Pages], places: Sequence[Place | None]) -> tuple[int, int]:
    """The number of pages and bytes."""
    pages = sum(len(each.hashes) for each in wanted)
    return pages, sum(sum(place.lengths) for place in places if place is not None)
