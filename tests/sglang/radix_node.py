"""SGLang's radix cache as a scheduler drives it: requests in, device pages out."""

import atexit
import hashlib
import itertools
import time
from array import array
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
from controller_node import Rank, Shape, as_rank, device_pool, extra_config, publish

_requests = itertools.count()

Kind = TypeVar("Kind", bound="RadixNode")  # Python 3.10 has no typing.Self


class Reused(NamedTuple):
    """The prefix of a prompt, with its KV in the device pool."""

    cached: int  # tokens that this node had on its device or host
    fetched: int  # tokens that came from the daemon
    slots: Any  # of all these tokens
    in_tree: int  # leading tokens whose slots the tree owns; the request owns the others


def invented_kv(tokens: Sequence[int], layers: Sequence[Any]) -> list[Any]:
    """KV that follows from the tokens: per layer one row per token, made of all tokens up to it."""
    rows = []
    for end in range(1, len(tokens) + 1):
        digest = hashlib.sha256(array("q", tokens[:end]).tobytes()).digest()
        rows.append(int.from_bytes(digest[:7], "big"))
    made = []
    for number, layer in enumerate(layers):
        flat = [
            torch.randn(layer[0].numel(), generator=torch.Generator().manual_seed(row + number))
            for row in rows
        ]
        made.append(torch.stack(flat).view(len(rows), *layer.shape[1:]).to(layer.dtype))
    return made


class RadixNode:
    """`UnifiedRadixCache` with its controller and our backend, made by SGLang's own init."""

    def __init__(
        self,
        socket_path: Path,
        shape: Shape,
        *,
        rank: Rank | None = None,
        model: str = "acme/model",
        tp_group: Any = None,
        launch: Mapping[str, Any] | None = None,
        **extra: Any,
    ) -> None:
        """`launch`: more options of SGLang; `extra`: more options of ours."""
        from sglang.srt.mem_cache.allocator import TokenToKVPoolAllocator
        from sglang.srt.mem_cache.cache_init_params import CacheInitParams
        from sglang.srt.mem_cache.memory_pool import ReqToTokenPool
        from sglang.srt.mem_cache.unified_cache.component_type import ComponentType
        from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache

        self.shape = shape
        args = publish(
            shape,
            extra_config(socket_path, **extra),
            served_model_name=model,
            hicache_write_policy="write_through",
            **(launch or {}),
        )
        self.device_pool = device_pool(shape)
        self.allocator = TokenToKVPoolAllocator(
            size=shape.tokens,
            dtype=shape.dtype,
            device="cpu",
            kvcache=self.device_pool,
            need_sort=False,
        )
        params = CacheInitParams(
            req_to_token_pool=ReqToTokenPool(
                size=8, max_context_len=8192, device="cpu", enable_memory_saver=False
            ),
            token_to_kv_pool_allocator=self.allocator,
            page_size=shape.page_size,
            disable=False,
            sliding_window_size=None,
            tree_components=(ComponentType.FULL,),
            tp_cache_group=tp_group,
        )
        with as_rank(rank or Rank()):
            self.cache = UnifiedRadixCache(params=params)
            self.cache.init_hicache(args, params)
        atexit.unregister(self.cache.shutdown)
        self.cache.load_back_threshold = 0
        self.controller = self.cache.cache_controller
        self.pool = self.controller.mem_pool_host.anchor_entry.host_pool
        self.pool.pin_memory = False
        self.controller.prefetch_capacity_limit = self.pool.size

    def prefill(self, tokens: Sequence[int]) -> None:
        """Inserts the tokens and waits until all is written."""
        self.insert(tokens)
        self._until(self.all_written)

    def insert(self, tokens: Sequence[int]) -> None:
        """Invents KV that follows from these tokens, and puts it into the tree."""
        from sglang.srt.mem_cache.base_prefix_cache import InsertParams

        slots = self.allocator.alloc(len(tokens))
        assert slots is not None, "the device pool is full"
        for layer, expected in zip(self._layers(), self.expected(tokens), strict=True):
            layer[slots] = expected
        self.cache.insert(InsertParams(key=self._key(tokens), value=slots))

    def reuse(self, tokens: Sequence[int]) -> Reused:
        """Brings the longest prefix that this node or the daemon has to the device."""
        cached, fetched = self.cached(tokens), self.fetch(tokens)
        slots = self.bring(tokens)
        return Reused(cached, fetched, slots, in_tree=len(slots))

    def keep(self, tokens: Sequence[int], slots: Any, in_tree: int) -> None:
        """Puts the KV in these slots into the tree, and waits until all is written. The tree owns
        the first `in_tree` of them already."""
        from sglang.srt.mem_cache.base_prefix_cache import InsertParams

        self.cache.insert(InsertParams(key=self._key(tokens), value=slots, prev_prefix_len=in_tree))
        self._until(self.all_written)

    def all_written(self) -> bool:
        return not (self.cache.ongoing_write_through or self.cache.ongoing_backup)

    def fetch(self, tokens: Sequence[int]) -> int:
        """Prefetches like a scheduler before a request. Returns the tokens from storage."""
        return int(self.cache.pop_prefetch_loaded_tokens(self._prefetch(tokens)))

    def _prefetch(self, tokens: Sequence[int]) -> Any:
        from sglang.srt.mem_cache.base_prefix_cache import CacheRequestHandle

        cache = self.cache
        match = self._match(tokens)
        matched = match.device_prefix_len + match.host_hit_length
        node = match.last_host_node
        handle = CacheRequestHandle(f"radix-{next(_requests)}", 0)
        cache.prefetch_from_storage(
            handle,
            node,
            array("q", tokens[matched:]),
            cache.get_last_hash_value(node),
            cache.get_prefix_hash_values(node) if cache.hicache_storage_pass_prefix_keys else None,
            matched_prefix_tokens=tokens[:matched],
        )
        self._until(lambda: cache.check_prefetch_progress(handle))
        return handle

    def load(self, tokens: Sequence[int]) -> list[Any]:
        """Loads the longest prefix from host to device. Returns its rows in each layer."""
        slots = self.bring(tokens)
        return [layer[slots].clone() for layer in self._layers()]

    def bring(self, tokens: Sequence[int]) -> Any:
        """Loads the longest prefix from host to device. Returns its slots in the device pool."""
        cache = self.cache
        match = self._match(tokens)
        if match.host_hit_length:
            assert cache.load_back(match.best_match_node)
            cache.ready_to_load_host_cache()
            for ack in list(self.controller.ack_load_queue):
                ack.finish_event.synchronize()
            cache.loading_check()
        match = self._match(tokens)
        return device_slots(cache, match)

    def cached(self, tokens: Sequence[int]) -> int:
        """The number of leading tokens that this node has on the device or the host."""
        match = self._match(tokens)
        return int(match.device_prefix_len + match.host_hit_length)

    def expected(self, tokens: Sequence[int]) -> list[Any]:
        return invented_kv(tokens, self._layers())

    def _layers(self) -> list[Any]:
        if self.shape.kind == "mla":
            return list(self.device_pool.kv_buffer)
        return [*self.device_pool.k_buffer, *self.device_pool.v_buffer]

    def _key(self, tokens: Sequence[int]) -> Any:
        from sglang.srt.mem_cache.radix_cache import RadixKey

        return RadixKey(array("q", tokens))

    def _match(self, tokens: Sequence[int]) -> Any:
        from sglang.srt.mem_cache.base_prefix_cache import MatchPrefixParams

        return self.cache.match_prefix(MatchPrefixParams(key=self._key(tokens)))

    def _until(self, done: Callable[[], object]) -> None:
        """Runs the scheduler's loop until `done()` is true."""
        end = time.monotonic() + 120  # SGLang's threads may starve for long on a busy machine
        while True:
            self.cache.check_hicache_events()
            if done():
                return
            assert time.monotonic() < end, "SGLang's threads did not finish"
            time.sleep(0.002)

    def close(self) -> None:
        ok, message = self.cache.detach_storage_backend()
        self.cache.release_host_resources()
        assert ok, message

    def __enter__(self: Kind) -> Kind:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def device_slots(cache: Any, match: Any) -> Any:
    if hasattr(match, "device_indices"):  # 0.5.21
        return match.device_indices
    return cache.path_device_indices(match.last_device_node)[: match.device_prefix_len]


def lock(cache: Any, req: Any, node: Any) -> None:
    """Keeps the request's prefix in the tree until `unlock`."""
    if hasattr(cache, "lock"):
        req.lock = cache.lock(node)
    else:  # 0.5.21
        req.last_node, req.swa_prefix_lock_released = node, False
        req.lock_receipt = cache.inc_lock_ref(node).to_dec_params()


def unlock(cache: Any, req: Any) -> None:
    if hasattr(cache, "unlock"):
        cache.unlock(req.lock)
    else:  # 0.5.21
        cache.unpin(req)
