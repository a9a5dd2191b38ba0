"""A decode node with `--disaggregation-decode-enable-offload-kvcache`: SGLang's own manager."""

import itertools
import time
from array import array
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from controller_node import Rank, Shape, as_rank, device_pool, extra_config, publish
from radix_node import lock

_requests = itertools.count()


class OffloadNode:
    """`DecodeKVCacheOffloadManager` with its controller and our backend. Requests are SGLang's
    `Req`. This class stands for the scheduler and the model: it invents the KV of each token.

    Needs torch's process group, of one rank."""

    def __init__(self, socket_path: Path, shape: Shape, model: str, **extra: Any) -> None:
        from sglang.srt.disaggregation.decode_kvcache_offload_manager import (
            DecodeKVCacheOffloadManager,
        )
        from sglang.srt.mem_cache.allocator import TokenToKVPoolAllocator
        from sglang.srt.mem_cache.cache_init_params import CacheInitParams
        from sglang.srt.mem_cache.memory_pool import ReqToTokenPool
        from sglang.srt.mem_cache.unified_cache.component_type import ComponentType
        from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache

        self.shape = shape
        publish(
            shape,
            extra_config(socket_path, **extra),
            served_model_name=model,
            disaggregation_mode="decode",
            disaggregation_decode_enable_offload_kvcache=True,
        )
        self.device_pool = device_pool(shape)
        self.allocator = TokenToKVPoolAllocator(
            size=shape.tokens,
            dtype=shape.dtype,
            device="cpu",
            kvcache=self.device_pool,
            need_sort=False,
        )
        self.rows = ReqToTokenPool(
            size=8, max_context_len=8192, device="cpu", enable_memory_saver=False
        )
        params = CacheInitParams(
            req_to_token_pool=self.rows,
            token_to_kv_pool_allocator=self.allocator,
            page_size=shape.page_size,
            disable=True,  # without --disaggregation-decode-enable-radix-cache
            sliding_window_size=None,
            tree_components=(ComponentType.FULL,),
            tp_cache_group=None,
        )
        with as_rank(Rank()):
            self.cache = UnifiedRadixCache(params=params)
            self.manager = DecodeKVCacheOffloadManager(
                req_to_token_pool=self.rows,
                token_to_kv_pool_allocator=self.allocator,
                tp_group=torch.distributed.group.WORLD,
                tree_cache=self.cache,
            )
        self.host = self.manager.decode_host_mem_pool
        self.host.pin_memory = False

    def start(self, prompt: Sequence[int], kv: list[Any]) -> Any:
        """A request after its prompt's KV has come from the prefill node."""
        from sglang.srt.managers.schedule_batch import Req
        from sglang.srt.mem_cache.base_prefix_cache import MatchPrefixParams
        from sglang.srt.mem_cache.radix_cache import RadixKey
        from sglang.srt.sampling.sampling_params import SamplingParams

        name = f"offload-{next(_requests)}"
        req = Req(name, "", array("q", prompt), SamplingParams(max_new_tokens=4096))
        match = self.cache.match_prefix(MatchPrefixParams(key=RadixKey(array("q", prompt))))
        lock(self.cache, req, match.last_device_node)
        assert self.rows.alloc([req]) is not None
        self._compute(req, len(prompt), kv)
        return req

    def generate(self, req: Any, tokens: Sequence[int], kv: list[Any], *, end: bool) -> None:
        """Generates these tokens as the scheduler's decode loop does, one by one. `kv`: that of the
        whole sequence. The last token has no KV yet."""
        for at, token in enumerate(tokens):
            req.output_ids.append(token)
            self._compute(req, len(req.origin_input_ids) + len(req.output_ids) - 1, kv)
            last = end and at + 1 == len(tokens)
            if last:
                from sglang.srt.managers.schedule_batch import FINISH_LENGTH

                req.finished_reason = FINISH_LENGTH(length=len(req.output_ids))
            offloads = self.manager.offload_kv_cache(req)
            if last and not offloads:
                self.manager.finalize_release_on_finish(req)
            self.manager.check_offload_progress()

    def _compute(self, req: Any, end: int, kv: list[Any]) -> None:
        begin = req.kv.kv_allocated_len
        if end == begin:
            return
        slots = self.allocator.alloc(end - begin)
        assert slots is not None, "the device pool is full"
        self.rows.req_to_token[req.kv.req_pool_idx, begin:end] = slots.to(torch.int32)
        req.kv.kv_allocated_len = end
        for layer, expected in zip(self._layers(), kv, strict=True):
            layer[slots] = expected[begin:end]

    def _layers(self) -> list[Any]:
        if self.shape.kind == "mla":
            return list(self.device_pool.kv_buffer)
        return [*self.device_pool.k_buffer, *self.device_pool.v_buffer]

    def until(self, done: Callable[[], object]) -> None:
        """Runs the scheduler's loop until `done()` is true."""
        end = time.monotonic() + 120  # SGLang's threads may starve for long on a busy machine
        while not done():
            self.manager.check_offload_progress()
            assert time.monotonic() < end, "SGLang's threads did not finish"
            time.sleep(0.002)

    def quiet(self) -> bool:
        """All copies and writes have ended."""
        return not (self.manager.ongoing_offload or self.manager.ongoing_backup)

    def close(self) -> None:
        self.manager.cache_controller.detach_storage_backend()
        self.manager.release_host_resources()

    def __enter__(self) -> "OffloadNode":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
