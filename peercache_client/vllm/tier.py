"""The methods that vLLM calls, as `SecondaryTierManager` of vllm 0.32 defines them."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from vllm.distributed.kv_transfer.kv_connector.v1.offloading.metrics import (
    OffloadingConnectorStats,
)
from vllm.platforms import current_platform
from vllm.v1.core import kv_cache_utils
from vllm.v1.kv_offload.base import (
    Locality,
    LookupResult,
    Medium,
    OffloadingCounterMetadata,
    OffloadingEvent,
    RequestOffloadingContext,
    get_offload_block_hash,
    get_offload_group_idx,
)
from vllm.v1.kv_offload.tiering.base import JobResult, SecondaryTierManager
from vllm.version import __version__ as vllm_version

from peercache_client import _ipc, memory
from peercache_client.page_names import UNTOLD, PageHash
from peercache_client.rate_limited_log import RateLimitedLog, never_raises
from peercache_client.vllm.hints import Hints
from peercache_client.vllm.identity import make_engine_namespace
from peercache_client.vllm.lookups import Lookups
from peercache_client.vllm.mover import Outcome, Transfer, make_mover
from peercache_client.vllm.ranks import check_ranks
from peercache_client.vllm.settings import Settings
from peercache_client.vllm.shared_slots import SharedSlots
from peercache_client.worth import Worth

try:
    from vllm.v1.metrics.cache_hit_source import CacheHitSource
except ImportError:  # vllm 0.31
    EXTERNAL = None
else:
    EXTERNAL = CacheHitSource.EXTERNAL_UNSPECIFIED

# Requests wait for loads, so these must not queue behind stores.
_LOAD_THREADS: Final = 4
_STORE_THREADS: Final = 2
# The longest wait for a transfer at the end of the engine, beyond the timeout of its requests.
_SHUTDOWN_SLACK_S: Final = 2.0
_PAGE_TOKENS_MAX: Final = (1 << 16) - 1
_CHUNKS_METRIC: Final = "vllm:kv_offload_peercache_chunks"


@dataclass
class _Request:
    """The state of a request in the tier until it ends."""

    last_key: bytes | None = None  # of the chunks moved so far, the last one of the prompt
    last_position: int = -1
    # Chunks that were loaded for it and not used yet.
    loaded: set[bytes] = field(default_factory=set)


class PeerCacheTier(SecondaryTierManager):  # type: ignore[misc]  # Any, where there is no vllm
    """One per engine. vLLM calls it on its scheduler's thread. No call waits for the daemon, but
    `drain_jobs` and `shutdown`.

    After construction only `shutdown` raises. A failure of the daemon is logged. It ends as a miss,
    and vLLM computes the chunk.
    """

    medium = Medium.STORAGE
    # vLLM has no word for "another host's memory, or its disk, or this host's".
    cache_hit_source = EXTERNAL

    def __init__(
        self,
        offloading_spec: Any,
        primary_kv_view: memoryview,
        tier_type: str,
        backpressure_detector: Any = None,
        *,
        enable_kv_events: bool = False,
        locality: str | None = None,
        **ours: Any,
    ) -> None:
        """Works without a daemon. `ours`: see `Settings`. ValueError for an invalid entry, and for
        ranks that do not write into this memory."""
        super().__init__(offloading_spec, primary_kv_view, tier_type, backpressure_detector)
        self._settings = Settings.parse(ours)
        self.locality = None if locality is None else Locality(locality)
        events = enable_kv_events and offloading_spec.kv_events_config.enable_kv_cache_events
        self._events: list[Any] | None = [] if events else None
        self._stats = OffloadingConnectorStats()
        self._log_rarely = RateLimitedLog()
        self._requests: dict[str, _Request] = {}
        self._slot_count: int = primary_kv_view.shape[0]  # type: ignore[index]
        config = offloading_spec.config
        address = _ipc.address_of(memory.byte_view(primary_kv_view))
        check_ranks(config, address)
        page_tokens = _page_tokens(config)
        self._worth = Worth(
            page_tokens, self._settings.prefill_tokens_per_s, self._settings.give_up_factor
        )
        self._slots = SharedSlots(
            self._settings,
            f"vllm dp{config.parallel.data_parallel_index} pid {os.getpid()}",
            self._make_namespace,
            address,
            self._slot_count,
            self.block_size_bytes,
            self._worth,
            event_hash,
            page_tokens,
        )
        self._lookups = Lookups(
            tier_type, self._slots, page_tokens, self._worth, self._settings.wait_s
        )
        self._hints = Hints(self._slots.hint)
        self._loads = make_mover("peercache-load", _LOAD_THREADS, self._slots.load)
        self._stores = make_mover("peercache-store", _STORE_THREADS, self._slots.store)

    def _make_namespace(self) -> str:
        # vLLM sets the root hash after it has made the tier, and before the first request.
        return make_engine_namespace(
            self._settings,
            self._offloading_spec.config,
            chunk_bytes=self.block_size_bytes,
            root_hash=kv_cache_utils.NONE_HASH,
            vllm_version=vllm_version,
            device=f"{current_platform.device_type} {current_platform.get_device_capability()}",
        )

    # --- requests --------------------------------------------------------------------------

    def on_new_request(self, req_context: Any) -> Any:
        self._requests[req_context.req_id] = _Request()
        self._hints.begin(req_context)
        return RequestOffloadingContext()

    @never_raises(lambda *_: None)
    def on_request_finished(self, req_context: Any) -> None:
        self._requests.pop(req_context.req_id, None)
        self._lookups.cleanup(req_context.req_id)
        self._hints.end(req_context.req_id)

    @never_raises(lambda *_: None)
    def on_schedule_end(self, context: Any) -> None:
        """Sends this step's lookups and hints to the daemon."""
        self._lookups.flush()
        self._hints.flush()
        for req_id in (*context.new_req_ids, *context.preempted_req_ids):
            if (request := self._requests.get(req_id)) is not None:
                request.loaded.clear()

    # --- chunks ----------------------------------------------------------------------------

    @never_raises(lambda *_: LookupResult.MISS)
    def lookup(self, key: Any, req_context: Any) -> Any:
        """RETRY until the daemon has answered. Never waits.

        If the host memory has fewer slots than the prompt has chunks, each load evicts a chunk that
        the same request has loaded before, and the request would wait for ever. So a request loads
        no more chunks than there are slots, and none of them twice, until vLLM has scheduled it.
        """
        self._hints.asked(req_context.req_id, key)
        if self._settings.stores_only:
            return LookupResult.MISS
        found = self._lookups.lookup(key, req_context)
        if found is None:
            return LookupResult.RETRY
        loaded = self._request(req_context).loaded
        if not found or key in loaded or len(loaded) >= self._slot_count:
            return LookupResult.MISS
        return LookupResult.HIT

    def submit_load(self, job_metadata: Any) -> None:
        transfer = self._transfer(job_metadata)
        self._request(job_metadata.req_context).loaded.update(transfer.keys)
        self._loads.submit(transfer)

    def submit_store(self, job_metadata: Any) -> None:
        self._worth.stored(job_metadata.keys)
        self._stores.submit(self._transfer(job_metadata))

    def _request(self, req_context: Any) -> _Request:
        """A load may come in the same step as the end of its request."""
        return self._requests.get(req_context.req_id) or _Request()

    def _transfer(self, job: Any) -> Transfer:
        """In the order of the prompt, since the daemon evicts the last pages of a prompt first.
        vLLM's keys may be a set."""
        keys, slots = list(job.keys), job.chunk_ids.tolist()
        positions = [job.req_context.get_offload_key_position(key) or 0 for key in keys]
        order = sorted(range(len(keys)), key=positions.__getitem__)
        request = self._request(job.req_context)
        continues = order and request.last_position <= positions[order[0]]
        parent = request.last_key if continues else None
        if continues:
            request.last_key, request.last_position = keys[order[-1]], positions[order[-1]]
        return Transfer(job.job_id, [keys[i] for i in order], [slots[i] for i in order], parent)

    # --- results ---------------------------------------------------------------------------

    def get_finished_jobs(self) -> Iterable[Any]:
        loads, stores = self._loads.take_all().values(), self._stores.take_all().values()
        finished = [self._result("load", each) for each in loads]
        return finished + [self._result("store", each) for each in stores]

    def _result(self, operation: str, outcome: Outcome) -> Any:
        keys, statuses = outcome.transfer.keys, outcome.statuses
        for status, count in Counter(statuses).items():
            self._stats.increase_counter(_CHUNKS_METRIC, count, (operation, status.name))
        good = [key for key, status in zip(keys, statuses, strict=True) if status]
        if operation == "load" and len(good) < len(keys):
            # Otherwise the request would find them and fail to load them for ever.
            self._lookups.mark_miss(set(keys).difference(good))
        if operation == "store" and good and self._events is not None:
            self._events.append(
                OffloadingEvent(good, self.medium, removed=False, locality=self.locality)
            )
        return JobResult(
            outcome.transfer.job_id,
            success=len(good) == len(keys),
            successful_keys=good if operation == "load" else None,
            transfer_time=outcome.took_s,
            transfer_bytes=len(good) * self.block_size_bytes,
        )

    def take_events(self) -> Iterable[Any]:
        """Stored chunks. Evictions have no events: pages leave other hosts, too."""
        events, self._events = self._events, None if self._events is None else []
        return events or ()

    @classmethod
    def build_metric_definitions(cls, extra_config: dict[str, Any]) -> dict[str, Any]:
        return {
            _CHUNKS_METRIC: OffloadingCounterMetadata(
                "Number of chunks that peercached moved or did not move, by operation (load, "
                "store) and by status (ok, absent, no_daemon, ...).",
                labelnames=("operation", "status"),
            )
        }

    def get_stats(self) -> Any:
        stats, self._stats = self._stats, OffloadingConnectorStats()
        return None if stats.is_empty() else stats

    # --- ends ------------------------------------------------------------------------------

    def drain_jobs(self) -> None:
        """Waits without limit: vLLM reuses all slots next, and a daemon may be writing there."""
        self._loads.wait_idle()
        self._stores.wait_idle()

    def shutdown(self) -> None:
        """Stored pages stay in the cache. RuntimeError if the daemon hangs in the middle of a
        transfer: vLLM then leaves its memory alone."""
        self._lookups.shutdown()
        self._hints.close(time.monotonic())  # they write nothing
        limit_s = self._settings.timeout_s + _SHUTDOWN_SLACK_S
        ended = [tasks.close(time.monotonic() + limit_s) for tasks in (self._loads, self._stores)]
        if not all(ended):
            raise RuntimeError("the daemon may still be writing into vLLM's host memory")
        self._slots.close()


def event_hash(key: Any) -> PageHash:
    """As in vLLM's events: the hash of the chunk's last block. A chunk of several groups is named
    by the first one's page: the others come with it."""
    if get_offload_group_idx(key):
        return UNTOLD
    page_hash: bytes | int = kv_cache_utils.maybe_convert_block_hash(get_offload_block_hash(key))
    return page_hash


def _page_tokens(config: Any) -> int:
    """The tokens of a chunk, for the daemon's statistics. With several groups, more than one chunk
    has the same tokens, and they are not counted."""
    tokens: int = config.groups[0].tokens_per_block * config.cache.blocks_per_chunk
    return tokens if len(config.groups) == 1 and tokens <= _PAGE_TOKENS_MAX else 0
