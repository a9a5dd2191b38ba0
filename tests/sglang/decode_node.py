"""A decode node of a prefill/decode cluster: SGLang's own hooks for its probe and its restore."""

import itertools
from array import array
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from radix_node import RadixNode, lock, unlock

_requests = itertools.count()


class DecodeNode(RadixNode):
    """`DecodeHiCachePreallocMixin` and `DecodeHiCacheTransferMixin` on a radix cache. The queues
    around them are left out, because they need a GPU's engine and a prefill node's sockets."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        from sglang.srt.disaggregation.decode_hicache_mixin import (
            DecodeHiCachePreallocMixin,
            DecodeHiCacheTransferMixin,
        )

        super().__init__(*arguments, **options)

        class Hooks(DecodeHiCachePreallocMixin, DecodeHiCacheTransferMixin):  # type: ignore[misc]
            tree_cache = self.cache
            scheduler = SimpleNamespace(enable_decode_hicache=True)

        self.hooks = Hooks()

    def probe(self, tokens: Sequence[int]) -> Any:
        """Probes on the scheduler's thread. Returns the request with `prefix_match`. SGLang tells
        the prefill node not to send its `decode_prefix_len` tokens."""
        from sglang.srt.disaggregation.decode import DecodeRequest
        from sglang.srt.mem_cache.base_prefix_cache import CacheRequestHandle

        name = f"decode-{next(_requests)}"
        req = SimpleNamespace(  # the fields of SGLang's Req that the hooks use
            rid=name,
            cache_request_handle=CacheRequestHandle(name, 0),
            origin_input_ids=array("q", tokens),
            output_ids=array("q"),
            extra_key=None,
            cache_salt=None,
            session=None,
            kv=SimpleNamespace(req_pool_idx=0, cache_protected_len=0, mamba_pool_idx=None),
            prefix_len=0,
            prefix_indices=(),
            last_node=None,
            _compute_max_prefix_len=lambda length: length,
        )
        match = _match_prefix(self.cache, req)
        lock(self.cache, req, match.last_device_node)
        receiver = SimpleNamespace(poll=self._transferred)
        request = DecodeRequest(req=req, kv_receiver=receiver)
        request.prefix_match = self.hooks._build_decode_prefix_match(req, match)
        return request

    @staticmethod
    def _transferred() -> Any:
        from sglang.srt.disaggregation.base import KVPoll

        return KVPoll.Success

    def release(self, request: Any) -> None:
        unlock(self.cache, request.req)

    def restore(self, request: Any) -> str:
        """Fetches the promised pages into the device pool. Returns SGLang's result."""
        from sglang.srt.disaggregation.decode_hicache_mixin import HiCacheRestoreResult

        self.hooks._start_hicache_prefetch(request.req, request.prefix_match)
        self._until(lambda: self._restored(request))
        if request.hicache_restore_status == HiCacheRestoreResult.READY:
            self.hooks._commit_hicache_local_restore_to_req(request)
        return str(request.hicache_restore_status.value)

    def _restored(self, request: Any) -> bool:
        from sglang.srt.disaggregation.decode_hicache_mixin import HiCacheRestoreResult

        self.hooks._process_hicache_local_restores([request])
        return bool(request.hicache_restore_status != HiCacheRestoreResult.PENDING)

    def poll(self, request: Any) -> Any:
        """SGLang's state of the request after the prefill node has sent the rest."""
        from sglang.srt.disaggregation.decode_hicache_mixin import HiCacheRestoreGatedKVReceiver

        return HiCacheRestoreGatedKVReceiver(request).poll()

    def rows(self, request: Any) -> list[Any]:
        """The request's device rows in each layer."""
        req = request.req
        slots = req.prefix_indices  # of 0.5.21
        if hasattr(self.cache, "path_device_indices"):
            slots = self.cache.path_device_indices(req.last_node)[: req.prefix_len]
        return [layer[slots].clone() for layer in self._layers()]


def _match_prefix(cache: Any, req: Any) -> Any:
    try:
        from sglang.srt.mem_cache.common import match_kv_cache
    except ImportError:  # 0.5.21
        from sglang.srt.managers.schedule_policy import match_prefix_for_req

        return match_prefix_for_req(cache, req, req.origin_input_ids)
    return match_kv_cache(req, cache, req.origin_input_ids)
