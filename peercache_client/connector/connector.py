"""The remote KV connector of SGLang's RFC 7746, using the daemon on this host."""

from __future__ import annotations

import operator
import os
import time
from array import array
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, Final

from peercache_client.client import Client
from peercache_client.connector.buffers import HostBuffers, buffers_of
from peercache_client.connector.calls import Calls, failed
from peercache_client.connector.chunks import move_in_chunks
from peercache_client.connector.interface import Moved, RemoteKVConnectorBase
from peercache_client.connector.keys import namespace_of, suffixes_of
from peercache_client.connector.metadata import ConnectorMetadata
from peercache_client.connector.plan import PageToTokens, make_plan
from peercache_client.connector.requests import Call, Requests
from peercache_client.connector.tokens import Salt, count_tokens, first_tokens, seed_of
from peercache_client.identity import Topology
from peercache_client.packed_keys import pack_with_suffixes
from peercache_client.rate_limited_log import RateLimitedLog

# A match that found fewer pages than asked for is looked up again, without a hold, this often: a
# scheduler waits for it.
_UNHELD_EVERY_S: Final = 1.0
_MATCH_TIMEOUT_S: Final = 1.0  # for the async lookup: no scheduler waits for it


class RemoteKVConnector(RemoteKVConnectorBase):
    """Stores and retrieves the KV of requests, page by page. Thread safe.

    Only `register_kv_buffers` raises. The other methods report an error as the exception of the
    future that they return; `num_external_matched_tokens` logs it and returns 0. If the daemon
    cannot store or find some of the pages, that is no error: the future's result is false, and its
    number smaller (Moved).

    A store or retrieve that is invalid or refused moves nothing. The end index of the store is 0,
    and the future has failed when the call returns.

    The RFC lets every call take further keywords. The connector ignores unknown ones, and logs
    their names.

    Tokens are integers from 0 to 2**63 - 1. A store or retrieve checks them only up to the end of
    its last full page, and with `is_eagle` one token more. The ValueError names the first invalid
    token and its position in `tokens_list`.
    """

    def __init__(self, metadata: ConnectorMetadata) -> None:
        """Works without a daemon."""
        self.metadata = metadata
        self._client = Client(
            metadata.socket_path,
            namespace_of(metadata),
            name=f"connector tp{metadata.tp_rank} pp{metadata.pp_rank} pid {os.getpid()}",
            timeout_s=metadata.timeout_s,
            # The engine reuses the pages of a retrieve as soon as its future is done.
            silence_timeout_s=None,
        )
        self._log_rarely = RateLimitedLog()
        self._requests = Requests(metadata.page_size, pairs=metadata.is_eagle)
        self._calls = Calls(metadata, self._requests)
        self._buffers: HostBuffers | None = None
        self._suffixes: tuple[str, ...] = ()
        self._closed = False
        # Of found pages that did not count in a match with hold_s, in the matches looked up again.
        self.unheld_tokens = 0
        self._look_again_at = 0.0

    def register_kv_buffers(self, kv_args: Any) -> None:
        """Call it once, before any other method. From `kv_args` (SGLang's KVArgs) it reads
        `kv_data_ptrs`, `kv_data_lens` and `kv_item_lens`. The memory must stay where it is.

        Raises ValueError for memory that cannot be used; the text says why.
        """
        if self._buffers is not None:
            raise ValueError("the buffers are registered already: make another connector")
        buffers = HostBuffers(self._client, buffers_of(kv_args), self.metadata)
        if buffers.why_copied:
            self._log_rarely.say(
                "copied",
                f"the KV buffers are not in memory that the daemon can share, so every page is "
                f"copied once more ({buffers.why_copied})",
            )
        self._suffixes = suffixes_of(self.metadata, buffers.sizes_bytes)
        self._buffers = buffers

    # --- pages -----------------------------------------------------------------------------

    def store_kv_async(
        self,
        req_id: str,
        page_to_tokens_mapping: PageToTokens,
        tokens_list: Sequence[int],
        *,
        extra_key: str | None = None,
        cache_salt: str | None = None,
        **kwargs: Any,
    ) -> tuple[Future[Moved], int]:
        """Stores pages of a request. Returns a future and the end index.

        `tokens_list` has all tokens of the request so far. The mapping gives, for each page number
        in the buffers, the slice of tokens that the page holds. A request may be stored in several
        calls, chunk by chunk. An incomplete last page is not stored.

        The end index is the end of the last page that will be stored, in tokens. The future's
        result is true if that happened. As a number, it is an index up to the end index: all pages
        of the call before it are stored, and every node can find them. When the future is done, the
        pages may be reused. A future that is cancelled before its call began also releases them.

        Exceptions of the future, with the end index 0: ValueError for an invalid mapping, token or
        salt; ConnectorBusy; RuntimeError before the buffers are registered and after `close`.
        """
        self._ignore(kwargs)
        return self._start(
            "stored", req_id, page_to_tokens_mapping, tokens_list, (extra_key, cache_salt)
        )

    def retrieve_kv_async(
        self,
        req_id: str,
        page_to_tokens_mapping: PageToTokens,
        tokens_list: Sequence[int],
        *,
        extra_key: str | None = None,
        cache_salt: str | None = None,
        **kwargs: Any,
    ) -> Future[Moved]:
        """Reads pages of a request into the buffers. Arguments and errors are those of
        `store_kv_async`.

        The future's result is true if the KV of all tokens of the mapping is in place, so it is
        false if the mapping ends with an incomplete page. As a number, it is an index of
        `tokens_list`. All pages of the call before it are in place; those after it may hold any
        bytes. When the future is done, nothing writes there any more.
        """
        self._ignore(kwargs)
        future, _ = self._start(
            "retrieved", req_id, page_to_tokens_mapping, tokens_list, (extra_key, cache_salt)
        )
        return future

    def num_external_matched_tokens(
        self,
        req_id: str,
        tokens: Sequence[int],
        num_local_computed_tokens: int = 0,
        *,
        extra_key: str | None = None,
        cache_salt: str | None = None,
        **kwargs: Any,
    ) -> int:
        """Counts the tokens of the request that can be retrieved. It does not count the first
        `num_local_computed_tokens`: the engine has their KV.

        It looks up the request's full pages from the first one on. With `hold_s` the holders pin
        these pages for that long. It answers within `match_timeout_s`, with the pages known by
        then. Pages that the holders do not pin do not count. Once a second `unheld_tokens` counts
        the tokens of such pages, and the log has a line. It never raises: after an error it logs a
        line and returns 0.
        """
        self._ignore(kwargs)
        try:
            whole, seed = self._whole_pages(tokens, (extra_key, cache_salt))
            local = _checked(num_local_computed_tokens)
            with self._requests.use(req_id) as call:
                found = self._match(call, whole, seed, self.metadata.match_timeout_s)
            return max(found - local, 0)
        except Exception as error:
            self._log_rarely.say("match", f"request {req_id}: nothing was looked up: {error}")
            return 0

    def num_external_matched_tokens_async(
        self,
        req_id: str,
        tokens: Sequence[int],
        num_local_computed_tokens: int = 0,
        *,
        extra_key: str | None = None,
        cache_salt: str | None = None,
        **kwargs: Any,
    ) -> Future[int]:
        """As `num_external_matched_tokens`, on another thread and with a longer timeout (1 s).
        Errors are the future's exception, as in `store_kv_async`. The result is 0 if the request is
        finished first."""
        self._ignore(kwargs)
        try:
            whole, seed = self._whole_pages(tokens, (extra_key, cache_salt))
            local = _checked(num_local_computed_tokens)

            def work(call: Call, tokens: array[int]) -> int:
                if call.stopped.is_set():  # the request has ended, so pin no pages
                    return 0
                return max(self._match(call, tokens, seed, _MATCH_TIMEOUT_S) - local, 0)

            return self._calls.submit(req_id, whole, work, storing=False)
        except Exception as error:
            return failed(error)

    # --- ends ------------------------------------------------------------------------------

    def finish_req(self, req_id: str, *, drop_stores: bool = False, **kwargs: Any) -> Future[None]:
        """Ends a request. Its stores complete; its retrieves and lookups stop after the current
        chunk. With `drop_stores`, for an aborted request, its stores stop as well. The futures of
        those calls report how far they went.

        The returned future is done when nothing uses the request's pages any more, and the
        request's state is freed. It cannot be cancelled. The request's name can be reused at once.
        """
        self._ignore(kwargs)
        return self._requests.finish(req_id, drop_stores=drop_stores)

    def close(self) -> None:
        """Stops all calls, including stores, after their current chunk, and waits for them; in a
        callback of a future, it does not wait. Stored pages stay."""
        self._closed = True
        self._calls.close()
        self._client.close()

    # --- inside ----------------------------------------------------------------------------

    def _start(
        self,
        done: str,
        req_id: str,
        mapping: PageToTokens,
        tokens_list: Sequence[int],
        salt: Salt,
    ) -> tuple[Future[Moved], int]:
        metadata = self.metadata
        size = metadata.page_size
        storing = done == "stored"

        def work(call: Call, tokens: array[int]) -> Moved:
            hashes = call.chain.hashes(tokens, seed)
            good, why = move_in_chunks(
                move, plan, hashes, self._suffixes, call, metadata.chunk_pages
            )
            if not why:
                self._log_rarely.say(
                    f"{done} {why.name}",
                    f"{good} of {len(plan.pages)} pages were {done}, then: {why.name}",
                )
            moved = (plan.first + good) * size
            return Moved(moved, moved >= (end if storing else plan.stop))

        try:
            buffers = self._ready_buffers()
            move = buffers.set if storing else buffers.get
            count = count_tokens(tokens_list)
            plan = make_plan(mapping, count, size, buffers.pages, metadata.boundary_tokens)
            end = (plan.first + len(plan.pages)) * size
            tokens = first_tokens(tokens_list, end + metadata.boundary_tokens)
            seed = seed_of(salt)
            return self._calls.submit(req_id, tokens, work, storing=storing), end
        except Exception as error:
            return failed(error), 0

    def _ignore(self, kwargs: dict[str, Any]) -> None:
        for name in kwargs:
            self._log_rarely.say(f"ignored {name}", f"ignored the unknown keyword {name}")

    def _whole_pages(self, tokens_list: Sequence[int], salt: Salt) -> tuple[array[int], str | None]:
        """The tokens that full pages' hashes cover, and the seed of these hashes."""
        self._ready_buffers()
        size, boundary = self.metadata.page_size, self.metadata.boundary_tokens
        pages = max(0, count_tokens(tokens_list) - boundary) // size
        return first_tokens(tokens_list, pages * size + boundary), seed_of(salt)

    def _match(self, call: Call, tokens: array[int], seed: str | None, timeout_s: float) -> int:
        end = time.monotonic() + timeout_s
        hashes = call.chain.hashes(tokens, seed)
        metadata = self.metadata
        held = self._count_pages(
            hashes,
            timeout_s,
            hold_s=metadata.hold_s,
            page_tokens=metadata.page_size if Topology.of(metadata).is_first else 0,
        )
        now = time.monotonic()
        is_due = self._look_again_at <= now < end
        if metadata.hold_s and held < len(hashes) and is_due:
            # The answer does not say whether a page is absent, or was found and not kept.
            self._look_again_at = now + _UNHELD_EVERY_S
            self._note_unheld(self._count_pages(hashes[held:], end - now))
        return held * metadata.page_size

    def _count_pages(self, hashes: Sequence[str], timeout_s: float, **options: Any) -> int:
        pieces = len(self._suffixes)
        keys = pack_with_suffixes(hashes, self._suffixes)
        present = self._client.batch_exists(keys, timeout_s=timeout_s, page_keys=pieces, **options)
        return present // pieces

    def _note_unheld(self, pages: int) -> None:
        if not pages:
            return
        tokens = pages * self.metadata.page_size
        self.unheld_tokens += tokens
        self._log_rarely.say(
            "unheld",
            f"a match is {tokens} tokens shorter than what the cluster has, because the holders "
            "did not keep these pages: at most a quarter of a pool is kept for hold_s. Lower "
            "hold_s, or increase pool_size",
        )

    def _ready_buffers(self) -> HostBuffers:
        if self._closed:
            raise RuntimeError("the connector is closed")
        if self._buffers is None:
            raise RuntimeError("no buffers are registered: call register_kv_buffers first")
        return self._buffers


def _checked(num_local_computed_tokens: int) -> int:
    """ValueError unless it is a whole number from 0 on."""
    try:
        local = operator.index(num_local_computed_tokens)
    except TypeError:
        local = -1
    if local < 0:
        raise ValueError(
            f"num_local_computed_tokens is {num_local_computed_tokens!r}: a whole number from 0 on"
        )
    return local
