"""The methods that SGLang calls, as `HiCacheStorage` of sglang 0.5.23 defines them."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from typing import Any, Final

from sglang.srt.mem_cache.hicache_storage import (
    HiCacheStorage,
    HiCacheStorageConfig,
    HiCacheStorageExtraInfo,
    PoolName,
    PoolTransfer,
    PoolTransferResult,
)
from sglang.srt.observability.metrics_collector import StorageMetrics

from peercache_client import Client
from peercache_client.hint_queue import HintQueue
from peercache_client.identity import Topology, make_namespace
from peercache_client.rate_limited_log import RateLimitedLog, never_raises
from peercache_client.sglang import hits, pools
from peercache_client.sglang.flat_pages import FlatPages
from peercache_client.sglang.mover import Mover, Pages
from peercache_client.sglang.page_forms import PageForm, keys_of
from peercache_client.sglang.placement import Sharing
from peercache_client.sglang.query import Asked, leading_pages, present_pages
from peercache_client.sglang.settings import Settings
from peercache_client.sglang.transfer_metrics import TransferMetrics
from peercache_client.worth import Worth

# On decode nodes the scheduler looks up pages on its own thread, and blocks every request
# meanwhile. After this timeout the daemon answers with the pages known by then.
_SCHEDULER_TIMEOUT_S: Final = 0.05
_QUERY_TIMEOUT_S: Final = 1.0
# The scheduler promises these pages to the prefill node, and a page evicted before its fetch ends
# the request with an error. So pin them long enough for the prefetch; the daemons limit the time.
_SCHEDULER_HOLD_S: Final = 5.0


class PeerCacheStorage(HiCacheStorage):  # type: ignore[misc]  # Any, where there is no sglang
    """One per scheduler process. Thread safe: SGLang calls it from five threads.

    After construction no method raises. Failures are logged, and count as misses.
    """

    def __init__(self, storage_config: HiCacheStorageConfig, kwargs: Any = None) -> None:
        """Works without a daemon. ValueError for an invalid extra config."""
        config = storage_config
        settings = Settings.parse(config.extra_config)
        self._topology = Topology.of(config)
        self._zero_copy = settings.zero_copy
        self._stores_only = settings.stores_only
        self._with_metrics = bool(config.enable_storage_metrics)
        self._log_rarely = RateLimitedLog()
        self._metrics = TransferMetrics()
        self.namespace = make_namespace(
            config.model_name, settings.model_revision, settings.namespace, settings.tenant
        )
        self._client = Client(
            settings.socket_path,
            self.namespace,
            name=f"sglang tp{config.tp_rank} pp{config.pp_rank} dp{config.dp_rank} "
            f"pid {os.getpid()}",
            timeout_s=settings.timeout_s,
            # SGLang reuses the pages of a prefetch as soon as the call has returned.
            silence_timeout_s=None,
        )
        self._sharing = Sharing(self._client, settings.allocator)
        self._hints = HintQueue(self._client.hint)
        # The tokens of a page are known when SGLang registers its pool.
        self._worth = Worth(0, settings.prefill_tokens_per_s, settings.give_up_factor)
        self._mover = Mover(
            self._client,
            settings.timeout_s,
            self._metrics,
            self._log_rarely,
            self._worth,
            self._topology,
        )
        # None: a pool that numbers pages and has no bytes. Pools that failed to register are
        # absent.
        self._forms: dict[str, PageForm | None] = {}
        self._registering = threading.Lock()

    # --- pools -----------------------------------------------------------------------------

    def register_mem_pool_host(self, mem_pool_host: Any) -> None:
        super().register_mem_pool_host(mem_pool_host)
        self._register(PoolName.KV, pools.unwrapped(mem_pool_host))

    def register_mem_host_pool_v2(self, host_pool: Any, host_pool_name: str) -> None:
        super().register_mem_host_pool_v2(host_pool, host_pool_name)
        self._register(host_pool_name, host_pool)

    @never_raises(lambda *_: None)
    def _register(self, name: str, pool: Any) -> None:
        with self._registering:
            if name == PoolName.KV and name in self._forms:
                return  # SGLang registers the KV pool twice: by itself, and in the group
            if pools.is_logical(pool):
                self._forms[name] = None
                return
            form = self._forms[name] = pools.make_form(
                name,
                pool,
                self._topology,
                self._sharing,
                zero_copy=self._zero_copy or name != PoolName.KV,
            )
            if name == PoolName.KV:
                self._worth.page_tokens = form.indices_per_page

    # --- what exists -----------------------------------------------------------------------

    @never_raises(lambda *_: 0)
    def batch_exists(
        self, keys: list[str], extra_info: HiCacheStorageExtraInfo | None = None
    ) -> int:
        """Counts the pages before the first missing one. On the scheduler's thread it pins them for
        5 s."""
        if self._stores_only or PoolName.KV not in self._forms:
            return 0
        form = self._forms[PoolName.KV]
        self._hint_of(extra_info, keys)
        return leading_pages(
            self._client,
            Asked(form, keys),
            _parent(form, extra_info),
            _query_timeout_s(),
            _hold_s(),
            count_tokens=self._topology.is_first,
            worth=self._worth,
        )

    def exists(self, key: str) -> bool:
        return self.batch_exists([key]) == 1

    @never_raises(lambda *_: PoolTransferResult(0, {}, []))
    def batch_exists_v2(
        self,
        keys: list[str],
        pool_transfers: list[PoolTransfer] | None = None,
        extra_info: HiCacheStorageExtraInfo | None = None,
    ) -> PoolTransferResult:
        """The longest prefix that all pools can restore, and all other restorable lengths. On the
        scheduler's thread it pins the pages for 5 s."""
        transfers = pool_transfers or []
        asked_for = (PoolName.KV, *(transfer.name for transfer in transfers))
        if self._stores_only or any(name not in self._forms for name in asked_for):
            return PoolTransferResult(0, {}, [])
        if not transfers:
            pages = self.batch_exists(keys, extra_info)
            lengths = list(range(1, pages + 1))
            return PoolTransferResult(pages, {PoolName.KV: pages} if pages else {}, lengths)
        form = self._forms[PoolName.KV]
        self._hint_of(extra_info, keys)
        asked = [Asked(form, keys)]
        for transfer in transfers:
            asked.append(Asked(self._forms[transfer.name], hits.keys_to_ask(transfer, keys)))
        kv, *others = present_pages(
            self._client, asked, _parent(form, extra_info), _query_timeout_s(), _hold_s()
        )
        kv_pages = hits.leading(kv)
        reach = {PoolName.KV: kv_pages} if kv_pages else {}
        verdicts = []
        for transfer, present in zip(transfers, others, strict=True):
            verdict = hits.verdict(transfer, present, kv_pages, len(keys))
            verdicts.append(verdict)
            # If a pool has no number here, SGLang derives one from the whole prefix. So a pool that
            # forbids no length must report its own, even 0.
            if verdict.pages or verdict.restorable is None:
                reach[transfer.name] = verdict.pages
        lengths = hits.restorable_lengths(kv_pages, verdicts)
        return PoolTransferResult(lengths[-1] if lengths else 0, reach, lengths)

    # --- hints -----------------------------------------------------------------------------

    @never_raises(lambda *_: None)
    def hint(self, envelope: Any, keys: Sequence[str]) -> None:
        """Hands a request's envelope of hints to the daemon, which executes it. Its actions are
        about these page hashes, unless they name pages. Never waits."""
        form = self._forms.get(PoolName.KV)
        self._hints.submit(envelope, [] if form is None else list(keys_of(form, keys)))

    def _hint_of(self, extra_info: HiCacheStorageExtraInfo | None, keys: Sequence[str]) -> None:
        """SGLang 0.5.23 has `kv_hints` on a request, but gives the storage none. This is the place
        where it could: docs/sglang.md."""
        envelope = ((extra_info and extra_info.extra_info) or {}).get("kv_hints")
        if envelope is not None:
            before = (extra_info and extra_info.prefix_keys) or []
            self.hint(envelope, [*before, *keys])

    # --- pages in place --------------------------------------------------------------------

    @never_raises(lambda _, keys, *__: [False] * len(keys))
    def batch_get_v1(
        self,
        keys: list[str],
        host_indices: Any,
        extra_info: HiCacheStorageExtraInfo | None = None,
    ) -> list[bool]:
        """True for a page: all its bytes are in place now."""
        return self._move(self._mover.get, [(PoolName.KV, keys, host_indices)], extra_info)[0]

    @never_raises(lambda _, keys, *__: [False] * len(keys))
    def batch_set_v1(
        self,
        keys: list[str],
        host_indices: Any,
        extra_info: HiCacheStorageExtraInfo | None = None,
    ) -> list[bool]:
        """True for a page: the daemon has stored it, and it can be found now."""
        return self._move(self._mover.set, [(PoolName.KV, keys, host_indices)], extra_info)[0]

    @never_raises(lambda _, transfers, *__: _all_false(transfers))
    def batch_get_v2(
        self,
        transfers: list[PoolTransfer],
        extra_info: HiCacheStorageExtraInfo | None = None,
    ) -> dict[str, list[bool]]:
        return self._move_transfers(self._mover.get, transfers, extra_info)

    @never_raises(lambda _, transfers, *__: _all_false(transfers))
    def batch_set_v2(
        self,
        transfers: list[PoolTransfer],
        extra_info: HiCacheStorageExtraInfo | None = None,
    ) -> dict[str, list[bool]]:
        return self._move_transfers(self._mover.set, transfers, extra_info)

    def _move_transfers(
        self, move: Any, transfers: list[PoolTransfer], extra_info: HiCacheStorageExtraInfo | None
    ) -> dict[str, list[bool]]:
        wanted = [
            (each.name, each.keys or [], () if each.host_indices is None else each.host_indices)
            for each in transfers
        ]
        results = self._move(move, wanted, extra_info)
        return {each.name: ok for each, ok in zip(transfers, results, strict=True)}

    def _move(
        self,
        move: Any,
        wanted: Sequence[tuple[str, Sequence[str], Any]],
        extra_info: HiCacheStorageExtraInfo | None,
    ) -> list[list[bool]]:
        """An unknown pool moves nothing. A pool without bytes succeeds without moving any."""
        results = [[self._forms.get(name, "") is None] * len(keys) for name, keys, _ in wanted]
        at: list[int] = []
        pages: list[Pages] = []
        for i, (name, keys, indices) in enumerate(wanted):
            form = self._forms.get(name)
            if form is not None:
                at.append(i)
                pages.append(Pages(str(name), form, keys, indices))
        if pages:
            moved = move(pages, _parent(pages[0].form, extra_info))
            for i, ok in zip(at, moved, strict=True):
                results[i] = ok
        return results

    # --- flat tensors ----------------------------------------------------------------------

    @never_raises(lambda _, keys, *__: [None] * len(keys))
    def batch_get(
        self, keys: list[str], target_locations: Any = None, target_sizes: Any = None
    ) -> list[Any]:
        """Fills the tensors of target_locations and returns them, with None for each miss."""
        flat = FlatPages.of(self._forms.get(PoolName.KV), target_locations)
        if flat is None:
            return [None] * len(keys)
        ok = self._mover.get([Pages(PoolName.KV.value, flat, keys, keys)], None)[0]
        return [page if good else None for page, good in zip(flat.pages, ok, strict=True)]

    @never_raises(lambda *_: False)
    def batch_set(
        self,
        keys: list[str],
        values: Any = None,
        target_locations: Any = None,
        target_sizes: Any = None,
    ) -> bool:
        """Whether all pages were stored."""
        flat = FlatPages.of(self._forms.get(PoolName.KV), values)
        if flat is None:
            return False
        return all(self._mover.set([Pages(PoolName.KV.value, flat, keys, keys)], None)[0])

    def get(self, key: str, target_location: Any = None, target_sizes: Any = None) -> Any:
        return self.batch_get([key], [target_location])[0]

    def set(
        self,
        key: str,
        value: Any = None,
        target_location: Any = None,
        target_sizes: Any = None,
    ) -> bool:
        return self.batch_set([key], [value])

    # --- everything else -------------------------------------------------------------------

    @never_raises(lambda *_: None)
    def clear(self) -> None:
        """Removes all pages of the namespace in the whole cluster before it returns."""
        if not self._client.clear():
            self._log_rarely.say("clear", f"{self.namespace} could not be cleared everywhere")

    def get_stats(self) -> StorageMetrics | None:
        """Never waits. None if SGLang runs without metrics."""
        if not self._with_metrics:
            return None
        samples = self._metrics.take()
        return StorageMetrics(
            prefetch_pgs=samples.prefetch_pages,
            backup_pgs=samples.backup_pages,
            prefetch_bandwidth=samples.prefetch_gb_per_s,
            backup_bandwidth=samples.backup_gb_per_s,
        )

    @never_raises(lambda *_: None)
    def close(self) -> None:
        """Later calls are misses. Stored pages stay in the cache."""
        self._hints.close(time.monotonic())
        self._client.close()


def _is_scheduler() -> bool:
    """SGLang's scheduler runs on the main thread of its process; transfers use other threads."""
    return threading.current_thread() is threading.main_thread()


def _query_timeout_s() -> float:
    return _SCHEDULER_TIMEOUT_S if _is_scheduler() else _QUERY_TIMEOUT_S


def _hold_s() -> float:
    return _SCHEDULER_HOLD_S if _is_scheduler() else 0.0


def _parent(form: PageForm | None, extra_info: HiCacheStorageExtraInfo | None) -> str | None:
    """The key before the first one. It chains calls, so that eviction drops tails before heads."""
    prefix = extra_info.prefix_keys if extra_info is not None else None
    if form is None or not prefix:
        return None
    return str(prefix[-1]) + form.suffixes[-1]


def _all_false(transfers: Sequence[PoolTransfer]) -> dict[str, list[bool]]:
    return {each.name: [False] * len(each.keys or ()) for each in transfers}
