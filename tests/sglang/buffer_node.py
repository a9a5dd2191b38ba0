"""A RadixNode in `--hicache-host-memory-mode buffer_only`: the host pool is only for transit."""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from controller_node import Shape
from radix_node import RadixNode, device_slots


class BufferNode(RadixNode):
    """Fetched pages wait in the host pool until their request is admitted, then they move to the
    device pool. Written pages leave the host pool when the daemon has them."""

    def __init__(self, socket_path: Path, shape: Shape, *, ratio: float = 1.2, **more: Any) -> None:
        launch = {"hicache_host_memory_mode": "buffer_only", "hicache_ratio": ratio}
        super().__init__(socket_path, shape, launch=launch, **more)
        self.pipeline = self.cache.buffer_pipeline

    def all_written(self) -> bool:
        return super().all_written() and self.pipeline.is_idle()

    def host_pool_is_empty(self) -> bool:
        return bool(self.pool.available_size() == self.pool.size)

    def fetch(self, tokens: Sequence[int]) -> int:
        """Fetches, admits and loads into the device pool, like the scheduler. Returns the number of
        tokens that came from storage, which are then in the tree."""
        from sglang.srt.mem_cache.base_prefix_cache import InitLoadBackParams

        handle = self._prefetch(tokens)
        fetched = int(self.cache.pop_prefetch_loaded_tokens(handle))
        if not self.pipeline.has_staged(handle):
            return 0
        match = self._match(tokens)
        request = SimpleNamespace(  # the fields of SGLang's Req that the pipeline uses
            rid=handle.rid,
            cache_request_handle=handle,
            extra_key=None,
            cache_salt=None,
            prefix_len=match.device_prefix_len,
            prefix_indices=device_slots(self.cache, match),  # of 0.5.21, instead of its length
            last_node=match.last_device_node,
            kv=SimpleNamespace(cache_protected_len=match.device_prefix_len),
            host_hit_length=0,
            swa_host_hit_length=0,
            mamba_host_hit_length=0,
            host_loaded_length=fetched,
            host_hit_is_storage=False,
            staged_prefetch_plan=None,
        )
        assert self.pipeline.prepare_staged_prefetch(request)
        if request.staged_prefetch_plan is not None:
            loaded = self.cache.init_load_back(
                InitLoadBackParams(match.best_match_node, request.host_hit_length, req=request)
            )
            assert loaded is not None, "no room in the device pool"
            self.cache.ready_to_load_host_cache()
            self._until(lambda: not self.pipeline.ongoing_buffer_load_back)
        return fetched
