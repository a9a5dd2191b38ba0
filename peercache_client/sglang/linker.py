"""SGLang's external linker: KV pages go from its device pools to the daemon, without a host tier.

    --enable-unified-cache-external-linker --unified-cache-external-linker-backend dynamic
    --unified-cache-external-linker-config '{"linker": "PeerCacheLinker",
        "linker_module_path": "peercache_client.sglang.linker", "linker_extra_config": {}}'

docs/sglang.md, "Without host memory", explains the settings and the limits.

- `linker_settings`: our keys of the config
- `device_pools`: the device pools that are moved
- `host_shapes`: the host pools that HiCache would have, for the tags in keys
- `device_forms`: the pieces of a pool's pages, and the place of each layer in them
- `device_pages`: copies between device tensors and the daemon, `direct_pages`: by the daemon
- `loaded_pages`: the pages that need not be stored, because they were just loaded
- `layer_broadcast`: one rank loads for all, where all have the same KV
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from queue import SimpleQueue
from typing import Any, Final

import torch
from sglang.srt.layers.dp_attention import is_dp_attention_enabled
from sglang.srt.mem_cache.hicache_storage import PoolName, PoolTransfer
from sglang.srt.mem_cache.unified_cache.unified_cache_linker import (
    LayerWiseLoadCounter,
    UnifiedCacheLinker,
)
from sglang.srt.runtime_context import get_parallel, get_serving

from peercache_client import Client
from peercache_client.hint_queue import HintQueue
from peercache_client.identity import Topology, make_namespace
from peercache_client.rate_limited_log import RateLimitedLog, never_raises
from peercache_client.sglang import hits
from peercache_client.sglang.device_forms import DeviceForm
from peercache_client.sglang.device_pages import DevicePages, PoolPages, StagedPages
from peercache_client.sglang.device_pools import device_pools, is_replicated
from peercache_client.sglang.direct_pages import DirectPages
from peercache_client.sglang.in_order import InOrder
from peercache_client.sglang.layer_broadcast import LayerBroadcast
from peercache_client.sglang.linker_settings import LinkerSettings
from peercache_client.sglang.loaded_pages import LoadedPages
from peercache_client.sglang.page_forms import keys_of
from peercache_client.sglang.query import Asked, leading_pages, present_pages
from peercache_client.worth import Worth

# The scheduler looks up pages on its own thread, and blocks every request meanwhile. After this
# timeout the daemon answers with the pages known by then.
_LOOKUP_TIMEOUT_S: Final = 0.05
# A page that is gone at the load ends the request with HTTP 503. So the holders keep the pages from
# the lookup until the load, which follows in the same pass of the scheduler's loop.
_LOOKUP_HOLD_S: Final = 5.0
_STAGING_BYTES: Final = 64 << 20


class PeerCacheLinker(UnifiedCacheLinker):  # type: ignore[misc]  # Any, where there is no sglang
    """One per scheduler process. SGLang calls it on the scheduler's thread.

    After construction no method raises. A page that cannot be looked up counts as absent, and one
    that cannot be loaded ends the requests that load in the same forward pass: SGLang learns of one
    result for all of them.
    """

    def __init__(
        self,
        server_args: Any,
        params: Any,
        *,
        components: Any,
        extra_config: dict[str, Any] | None = None,
        forward_stream: Any = None,
    ) -> None:
        """Works without a daemon. ValueError for an invalid config or a pool that cannot be moved,
        OSError without memory for the staging regions."""
        settings = LinkerSettings.parse(extra_config)
        self.forward_stream = forward_stream
        self._group = device_pools(params, set(components))
        self.pools = self._group.entry_map
        self._topology = _topology(params)
        self._forms = {
            entry.name: DeviceForm(entry, self._topology, settings.layout)
            for entry in self._group.entries
        }
        self._stores_only = settings.stores_only
        kv = self._forms.get(PoolName.KV)
        # A load that comes late would end its request, so none is given up.
        self._worth = Worth(
            0 if kv is None else kv.indices_per_page, settings.prefill_tokens_per_s, 0
        )
        self._timeout_s = settings.timeout_s
        self._log_rarely = RateLimitedLog()
        # What may raise is done before the threads start, since nobody would end them.
        staging_bytes = _checked_staging(settings.staging_bytes, list(self._forms.values()))
        self._broadcast: LayerBroadcast | None = None
        if getattr(server_args, "enable_linker_mla_dedup", False) and (
            self._group.rank_replicated and self._topology.tp_size > 1
        ):
            tp_group = params.attn_tp_cache_group or params.tp_cache_group
            self._broadcast = LayerBroadcast(self._group, params, tp_group)
        self.namespace = make_namespace(
            get_serving().served_model_name,
            settings.model_revision,
            settings.namespace,
            settings.tenant,
        )
        self._client = Client(
            settings.socket_path,
            self.namespace,
            name=f"sglang linker tp{self._topology.tp_rank} pp{self._topology.pp_rank} "
            f"dp{_dp_rank()} pid {os.getpid()}",
            timeout_s=settings.timeout_s,
            # The staging region is used again as soon as a call has returned.
            silence_timeout_s=None,
        )
        self._loads = self._stores = self._device_pages(settings, staging_bytes)
        if not settings.direct:
            # A region for each direction: a load, for which a forward pass waits, never waits for a
            # store.
            self._stores = self._device_pages(settings, staging_bytes)
        self.layer_done_counter = LayerWiseLoadCounter(
            self._group.num_layers, self._broadcast and self._broadcast.layer_is_ready
        )
        if PoolName.MAMBA in self.pools:
            params.req_to_token_pool.register_layer_transfer_counter(self.layer_done_counter)
        self._hints = HintQueue(self._client.hint)
        self._queued: dict[str, list[PoolTransfer]] = {}
        self._closed = False
        self._just_loaded = LoadedPages()
        self._stored: SimpleQueue[bool] = SimpleQueue()
        self._loading = InOrder("peercache load", self._log_rarely)
        self._storing = InOrder("peercache store", self._log_rarely)

    def _device_pages(self, settings: LinkerSettings, staging_bytes: int) -> DevicePages:
        forms, layers = list(self._forms.values()), self._group.num_layers
        if settings.direct:
            return DirectPages(
                self._client, forms, layers, self._timeout_s, self._log_rarely, self._topology
            )
        return StagedPages(
            self._client, forms[0].device, layers, staging_bytes // 2, self._log_rarely,
            self._topology,
        )  # fmt: skip

    # --- what exists -----------------------------------------------------------------------

    @never_raises(lambda *_: [])
    def lookup(self, rid: str, transfers: list[PoolTransfer]) -> list[int]:
        """Also pins the pages for 5 s. A page that its holder cannot pin counts as absent."""
        wanted = self._group.resolve_transfers(transfers)
        if self._stores_only or not wanted:
            return []
        hashes = next(each.keys for each in transfers if each.name == PoolName.KV)
        asked = [Asked(self._forms[each.name], hits.keys_to_ask(each, hashes)) for each in wanted]
        if len(asked) == 1 and wanted[0].name == PoolName.KV:
            reach = leading_pages(
                self._client,
                asked[0],
                None,
                _LOOKUP_TIMEOUT_S,
                _LOOKUP_HOLD_S,
                count_tokens=self._topology.is_first,
                worth=self._worth,
            )
            return list(range(1, reach + 1))
        present = present_pages(self._client, asked, None, _LOOKUP_TIMEOUT_S, _LOOKUP_HOLD_S)
        # Without a KV pool of its own (DeepSeek V4), the pools beside it decide.
        kv_pages = len(hashes)
        if wanted[0].name == PoolName.KV:
            kv_pages = hits.leading(present[0])
        verdicts = [
            hits.verdict(each, of_pool, kv_pages, len(hashes))
            for each, of_pool in zip(wanted, present, strict=True)
        ]
        return hits.restorable_lengths(kv_pages, verdicts)

    @never_raises(lambda *_: None)
    def hint(self, envelope: Any, keys: Sequence[str]) -> None:
        """As PeerCacheStorage.hint."""
        form = self._forms.get(PoolName.KV)
        self._hints.submit(envelope, [] if form is None else list(keys_of(form, keys)))

    # --- loads -----------------------------------------------------------------------------

    @never_raises(lambda *_: False)
    def load(self, rid: str, transfers: list[PoolTransfer]) -> bool:
        wanted = self._group.resolve_transfers(transfers, allow_partial=True, allow_missing_kv=True)
        if not wanted or rid in self._queued or self._closed:
            return False
        self._queued[rid] = wanted
        return True

    @never_raises(lambda *_: False)
    def cancel_queued_load(self, rid: str) -> bool:
        return self._queued.pop(rid, None) is not None

    def start_layer_wise_loading(self) -> int:
        queued, self._queued = self._queued, {}
        broadcast = self._broadcast
        if broadcast is not None and not broadcast.agreed(queued):
            broadcast = None
        if not queued:
            return -1
        index: int = self.layer_done_counter.update_producer()
        try:
            self._start(index, queued, broadcast)
        except Exception as error:
            # The forward pass would wait for ever, or use what the slots held before.
            self._fail(index, f"a load could not be started: {error}")
        return index

    def _start(
        self, index: int, queued: dict[str, list[PoolTransfer]], broadcast: LayerBroadcast | None
    ) -> None:
        transfers = [each for some in queued.values() for each in some]
        # Requests that have ended may still be in a forward pass that uses these slots.
        ready = self.record_offload_ready()
        if broadcast is not None:
            broadcast.start(index, transfers, ready)
            if not broadcast.is_source:
                for layer in range(self._group.num_layers):
                    self.layer_done_counter.complete(index, layer)
                return
        self._loading.put(lambda: self._load(index, transfers, ready))

    def _load(self, index: int, transfers: Sequence[PoolTransfer], ready: Sequence[Any]) -> None:
        try:
            ready[0].synchronize()  # the indices are there
            pages = self._pages(transfers)

            def layer_landed(layer: int) -> None:
                if layer == self._group.num_layers - 1:  # now SGLang may store the pages
                    for each in pages:
                        self._just_loaded.add(each.form.name, each.hashes)
                self.layer_done_counter.complete(index, layer)

            landed = self._loads.get(pages, ready, layer_landed)
        except Exception as error:
            self._fail(index, f"a load failed: {error}", trace=True)
            return
        if not all(map(all, landed)):
            self._fail(index, "pages were lost after SGLang had looked them up")

    def _fail(self, index: int, why: str, *, trace: bool = False) -> None:
        self._log_rarely.say("loading", f"{why}; SGLang aborts the requests that load", trace=trace)
        self.layer_done_counter.fail(index, RuntimeError(why))

    @never_raises(lambda *_: False)
    def finish_layer_wise_loading(self, counter_index: int) -> bool:
        return bool(self.layer_done_counter.finish(counter_index))

    # --- stores ----------------------------------------------------------------------------

    @never_raises(lambda *_, **__: False)
    def offload(self, transfers: list[PoolTransfer], session_id: str | None = None) -> bool:
        """A node of the tree counts as stored if all its pages of all pools are. If some are not,
        the others may stay: `lookup` reports no length that lacks any."""
        wanted = self._group.resolve_transfers(transfers, allow_partial=True)
        if not wanted or self._closed:
            return False
        if wanted[0].name == PoolName.KV:
            self._worth.stored(wanted[0].keys)
        mine = [each for each in wanted if self._is_mine(each)]
        ready = self.record_offload_ready()
        # All ranks must take the same nodes, so a late store is given up below, not refused here.
        end_s = time.monotonic() + self._timeout_s
        self._storing.put(lambda: self._stored.put(self._store(mine, ready, end_s)))
        return True

    def _is_mine(self, transfer: PoolTransfer) -> bool:
        """Rank 0 alone stores the pages that all TP ranks have."""
        return not (self._forms[transfer.name].shared_by_tp_ranks and self._topology.tp_rank)

    def _store(self, transfers: Sequence[PoolTransfer], ready: Sequence[Any], end_s: float) -> bool:
        if not transfers:
            return True
        if time.monotonic() > end_s:
            # SGLang keeps the node on the device until it knows the result.
            self._log_rarely.say("late", "the daemon is slow: stores waited too long, given up")
            return False
        try:
            ready[0].synchronize()  # the indices are there
            pages = [self._not_just_loaded(each) for each in self._pages(transfers)]
            return all(map(all, self._stores.set(pages, ready)))
        except Exception as error:
            self._log_rarely.say("store", f"a store failed: {error}", trace=True)
            return False

    def _pages(self, transfers: Sequence[PoolTransfer]) -> list[PoolPages]:
        """One for each pool."""
        found: dict[PoolName, PoolPages] = {}
        for each in transfers:
            form = self._forms[each.name]
            numbers = form.page_numbers(each.host_indices)
            if len(numbers) != len(each.keys):
                raise ValueError(
                    f"pool {each.name}: indices of {len(numbers)} pages for {len(each.keys)} keys"
                )
            pages = found.setdefault(each.name, PoolPages(form, [], []))
            pages.hashes.extend(each.keys)
            pages.numbers.extend(numbers)
        return list(found.values())

    def _not_just_loaded(self, pages: PoolPages) -> PoolPages:
        loaded = self._just_loaded.take(pages.form.name, pages.hashes)
        left = [place for place, known in enumerate(loaded) if not known]
        return PoolPages(
            pages.form, [pages.hashes[i] for i in left], [pages.numbers[i] for i in left]
        )

    @never_raises(lambda *_: 0)
    def num_completed_offloads(self) -> int:
        return self._stored.qsize()

    @never_raises(lambda *_: False)
    def pop_completed_offload(self) -> bool:
        return self._stored.get_nowait()

    # --- everything else -------------------------------------------------------------------

    @never_raises(lambda *_: None)
    def reset(self) -> None:
        """Waits for all transfers, and forgets their results."""
        self._queued.clear()
        self._loading.wait()
        self._storing.wait()
        while not self._stored.empty():
            self._stored.get_nowait()
        self._just_loaded.clear()
        if self._broadcast is not None:
            self._broadcast.reset()
        self.layer_done_counter.reset()

    @never_raises(lambda *_: None)
    def close(self) -> None:
        """Waits for all transfers, and ends the threads. Later lookups find nothing."""
        if self._closed:
            return
        self._closed = True
        self.reset()
        for thread in (self._loading, self._storing):
            thread.close()
        for pages in dict.fromkeys((self._loads, self._stores)):
            pages.close()
        self._hints.close(time.monotonic())
        self._client.close()
        if self._broadcast is not None:
            self._broadcast.close()


def _topology(params: Any) -> Topology:
    """As HiCache's controller tells it to a backend."""
    parallel = get_parallel()
    with_dp = is_dp_attention_enabled()
    cp_rank, cp_size = 0, 1
    if params.attn_cp_cache_group is not None:
        cp_rank = torch.distributed.get_rank(group=params.attn_cp_cache_group)
        cp_size = torch.distributed.get_world_size(group=params.attn_cp_cache_group)
    return Topology(
        tp_rank=parallel.attn_tp_rank if with_dp else parallel.tp_rank,
        tp_size=parallel.attn_tp_size if with_dp else parallel.tp_size,
        pp_rank=parallel.pp_rank,
        pp_size=parallel.pp_size,
        cp_rank=cp_rank,
        cp_size=cp_size,
        dcp_rank=0,
        dcp_size=1,
        replicated=is_replicated(params),
        tp_lcm_size=0,
    )


def _dp_rank() -> int:
    return int(get_parallel().attn_dp_rank) if is_dp_attention_enabled() else 0


def _checked_staging(asked_bytes: int, forms: Sequence[DeviceForm]) -> int:
    """The bytes of both staging regions. ValueError if one of them is too small for a page."""
    # A region aligns each piece to 64 bytes.
    needed = 2 * max(form.page_bytes + 64 * (1 + len(form.sizes_bytes)) for form in forms)
    if not asked_bytes:
        return max(_STAGING_BYTES, needed)
    if asked_bytes < needed:
        raise ValueError(f"staging_bytes is {asked_bytes}: the pages need {needed} or more")
    return asked_bytes
