"""SGLang's radix cache with our linker, as a scheduler drives it. There is no host tier."""

import itertools
import time
from array import array
from collections.abc import Callable, Sequence
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pytest
import torch
from controller_node import Rank, Shape, as_rank, device_pool
from radix_node import Reused, invented_kv
from tensors_on_stand_in import TensorsOnStandIn

from peercache_client import cuda

_requests = itertools.count()

Kind = TypeVar("Kind", bound="LinkerNode")  # Python 3.10 has no typing.Self


class Loading(NamedTuple):
    """A request, and the load of its KV."""

    req: Any
    tokens: int  # that are loaded
    batch: int  # in the counter
    slots: Any  # of its whole prefix in the device pool


class LinkerNode:
    """`UnifiedRadixCache` with the linker that SGLang's factory makes from the launch options."""

    def __init__(
        self,
        socket_path: Path,
        shape: Any,
        *,
        rank: Rank | None = None,
        model: str = "acme/model",
        tp_group: Any = None,
        mla_dedup: bool = False,
        stand_in: TensorsOnStandIn | None = None,
        **extra: Any,
    ) -> None:
        """`shape`: a Shape, or a configuration of SGLang's test kit. `stand_in`: the daemon copies
        from and to these tensors. `extra`: options of ours."""
        self.shape = shape
        with ExitStack() as stack:
            stack.enter_context(as_rank(rank or Rank()))
            if stand_in is not None:
                patch = stack.enter_context(pytest.MonkeyPatch.context())
                patch.setattr(cuda, "export", stand_in.export)
                extra["direct"] = True
            with stand_in.makes_pools() if stand_in is not None else nullcontext():
                if isinstance(shape, Shape):
                    self.cache, self.allocator, self.requests = _plain(shape, tp_group)
                else:
                    self.cache, self.allocator, self.requests = _of_kit(shape)
            args = launch(socket_path, shape, model=model, mla_dedup=mla_dedup, **extra)
            self.linker = make_linker(args, self.cache)
            self._stack = stack.pop_all()
        self.cache.init_cache_linker(self.linker)
        self.counter = self.linker.layer_done_counter
        self.device_pool = self.allocator.get_kvcache()
        self.device_pool.register_layer_transfer_counter(self.counter)

    # --- tensors ---------------------------------------------------------------------------

    def layers(self) -> list[Any]:
        pool = getattr(self.device_pool, "full_kv_pool", self.device_pool)
        if hasattr(pool, "k_buffer"):
            return [*pool.k_buffer, *pool.v_buffer]
        return list(pool.kv_buffer)

    def window_layers(self) -> list[Any]:
        pool = self.device_pool.swa_kv_pool
        return [*pool.k_buffer, *pool.v_buffer]

    def states(self, slot: int) -> list[Any]:
        """Views of the Mamba states in a slot, of all layers."""
        state = self.requests.mamba_pool.mamba_cache
        return [each[:, slot] for each in (state.temporal, *state.conv)]

    def window_slots(self, slots: Any) -> Any:
        return self.allocator.full_to_swa_index_mapping[slots].to(torch.int64)

    # --- as a scheduler --------------------------------------------------------------------

    def prefill(self, tokens: Sequence[int]) -> bool:
        """Puts KV that follows from the tokens into the tree, and waits until it is offloaded."""
        self.insert(tokens)
        return self.offloaded()

    def insert(self, tokens: Sequence[int]) -> None:
        from sglang.srt.mem_cache.base_prefix_cache import InsertParams

        slots = self._alloc(len(tokens))
        for layer, rows in zip(self.layers(), self.expected(tokens), strict=True):
            layer[slots] = rows
        params = InsertParams(key=self._key(tokens), value=slots)
        if "swa_kv_pool" in vars(self.device_pool):
            window = self.window_slots(slots)
            expected = invented_kv(tokens, self.window_layers())
            for layer, rows in zip(self.window_layers(), expected, strict=True):
                layer[window] = rows
        if hasattr(self.requests, "mamba_pool"):
            slot = self._request().kv.mamba_pool_idx
            expected = self.expected_states(tokens)
            for state, bytes_ in zip(self.states(int(slot)), expected, strict=True):
                state.copy_(bytes_)
            params.mamba_value = slot.unsqueeze(0)
        self.cache.insert(params)

    def offloaded(self) -> bool:
        """Whether the daemon took all that was inserted."""
        answers: list[bool] = []
        commit = self.cache.linker.commit_completed_offloads

        def noted(successes: Sequence[bool]) -> None:
            answers.extend(successes)
            commit(successes)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(self.cache.linker, "commit_completed_offloads", noted)
            self._until(lambda: not self.cache.linker.pending_offloads)
        return all(answers)

    def evict(self, tokens: int) -> None:
        from sglang.srt.mem_cache.base_prefix_cache import EvictParams

        self.cache.evict(EvictParams(num_tokens=tokens))

    def match(self, tokens: Sequence[int]) -> Any:
        """A new request for these tokens: what the tree and the store have of them."""
        from sglang.srt.mem_cache.base_prefix_cache import MatchPrefixParams

        req = self._request()
        req.rid = f"linker-{next(_requests)}"
        match = self.cache.match_prefix(MatchPrefixParams(key=self._key(tokens), req=req))
        req.prefix_len = match.device_prefix_len
        for name in ("best_match_node", "host_hit_length", "last_host_node"):
            setattr(req, name, getattr(match, name))
        req.swa_host_hit_length = match.swa_host_hit_length
        req.mamba_host_hit_length = match.mamba_host_hit_length
        req.last_node = match.last_device_node
        return req

    def found(self, tokens: Sequence[int]) -> int:
        """The number of leading tokens that the store has beyond those of the tree."""
        return int(self.match(tokens).host_hit_length)

    def admit(self, *reqs: Any) -> list[Loading]:
        """Starts to load these requests in one forward pass."""
        from sglang.srt.mem_cache.base_prefix_cache import InitLoadBackParams

        loaded = []
        for req in reqs:
            tokens, req.last_node = self.cache.init_load_back(
                InitLoadBackParams(req.best_match_node, req.host_hit_length, req=req)
            )
            req.prefix_len += tokens
            loaded.append(tokens)
        index = self.cache.ready_to_load_host_cache()
        self.counter.set_consumer(index)
        return [
            Loading(req, tokens, index, self.cache.prefix_device_indices(req).clone())
            for req, tokens in zip(reqs, loaded, strict=True)
        ]

    def forward(self, *loading: Loading) -> list[Any]:
        """The waits of a forward pass. Returns the requests that SGLang aborts."""
        for layer in range(self.counter.num_layers):
            self.counter.wait_until(layer)
        return list(self.cache.finish_external_linker_loads([each.req for each in loading]))

    def load(self, tokens: Sequence[int]) -> Loading:
        """Loads what the store has. No request is aborted."""
        [loading] = self.admit(self.match(tokens))
        assert self.forward(loading) == []
        return loading

    def reuse(self, tokens: Sequence[int]) -> Reused:
        """Brings the longest prefix that the device or the daemon has to the device. As in
        SGLang, the request owns the loaded slots until `keep`."""
        req, fetched, _, slots = self.load(tokens)
        self.requests.free(req)
        cached = len(slots) - fetched
        return Reused(cached, fetched, slots, in_tree=cached)

    def keep(self, tokens: Sequence[int], slots: Any, in_tree: int) -> None:
        """Puts the KV in these slots into the tree, and waits until it is offloaded. The tree owns
        the first `in_tree` of them already."""
        from sglang.srt.mem_cache.base_prefix_cache import InsertParams

        self.cache.insert(InsertParams(key=self._key(tokens), value=slots, prev_prefix_len=in_tree))
        self.offloaded()

    def holds(self, loading: Loading, tokens: Sequence[int]) -> bool:
        """Whether the device has the right bytes of all pools for these tokens, which are all that
        was matched."""
        slots = loading.slots
        if len(slots) != len(tokens):
            return False
        got = [layer[slots] for layer in self.layers()]
        expected = self.expected(tokens)
        if "swa_kv_pool" in vars(self.device_pool):
            window = min(len(tokens), self.shape.sliding_window_size)
            rows = self.window_slots(slots[-window:])
            got += [layer[rows] for layer in self.window_layers()]
            expected += [each[-window:] for each in invented_kv(tokens, self.window_layers())]
        if hasattr(self.requests, "mamba_pool"):
            got += self.states(int(loading.req.kv.mamba_pool_idx))
            expected += self.expected_states(tokens)
        return all(map(torch.equal, got, expected))

    def expected(self, tokens: Sequence[int]) -> list[Any]:
        return invented_kv(tokens, self.layers())

    def expected_states(self, tokens: Sequence[int]) -> list[Any]:
        """Mamba's states after the last token, of all layers."""
        seed = hash(tuple(tokens)) % (1 << 40)
        return [
            torch.randn(each.shape, generator=torch.Generator().manual_seed(seed + number)).to(
                each.dtype
            )
            for number, each in enumerate(self.states(0))
        ]

    # --- helpers ---------------------------------------------------------------------------

    def _alloc(self, count: int) -> Any:
        full = getattr(self.allocator, "full_attn_allocator", None)
        if full is None or self.shape.page_size == 1:
            slots = self.allocator.alloc(count)
        else:
            slots = full.alloc(count)
            window = self.allocator.swa_attn_allocator.alloc(count)
            self.allocator.full_to_swa_index_mapping[slots] = window
        assert slots is not None, "the device pool is full"
        return slots

    def _request(self) -> Any:
        from sglang.srt.managers.schedule_batch import Req
        from sglang.srt.sampling.sampling_params import SamplingParams

        req = Req(
            rid=0,
            origin_input_text="",
            origin_input_ids=array("q"),
            sampling_params=SamplingParams(temperature=0, max_new_tokens=1),
        )
        self.requests.alloc([req])
        return req

    def _key(self, tokens: Sequence[int]) -> Any:
        from sglang.srt.mem_cache.radix_cache import RadixKey

        return RadixKey(array("q", tokens))

    def _until(self, done: Callable[[], object]) -> None:
        end = time.monotonic() + 120
        while True:
            self.cache.check_hicache_events()
            if done():
                return
            assert time.monotonic() < end, "the linker did not finish"
            time.sleep(0.002)

    def close(self) -> None:
        self.cache.release_host_resources()
        self._stack.close()

    def __enter__(self: Kind) -> Kind:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def launch(
    socket_path: Path, shape: Any, *, model: str, mla_dedup: bool = False, **extra: Any
) -> Any:
    """Sets SGLang's process-wide configuration, as its start does."""
    from sglang.srt.server_args import ServerArgs, set_global_server_args_for_scheduler

    args = ServerArgs(
        model_path="dummy",
        served_model_name=model,
        page_size=shape.page_size,
        kv_cache_dtype=getattr(shape, "kv_cache_dtype", "auto"),
        enable_unified_cache_external_linker=True,
        unified_cache_external_linker_backend="dynamic",
        enable_linker_mla_dedup=mla_dedup,
        unified_cache_external_linker_config={
            "linker": "PeerCacheLinker",
            "linker_module_path": "peercache_client.sglang.linker",
            "linker_extra_config": {
                "socket_path": str(socket_path),
                "prefill_tokens_per_s": 0,  # nothing is computed, so all loads would be cut
                **extra,
            },
        },
    )
    set_global_server_args_for_scheduler(args)
    return args


def make_linker(args: Any, cache: Any) -> Any:
    """As SGLang's registry of caches does it."""
    from sglang.srt.mem_cache.unified_cache import linker_factory

    return linker_factory.create_unified_cache_linker(
        args,
        cache.cache_init_params,
        backend=args.unified_cache_external_linker_backend,
        config=linker_factory.get_startup_linker_config(),
        components=set(cache.components),
    )


def _plain(shape: Shape, tp_group: Any) -> tuple[Any, Any, Any]:
    from sglang.srt.mem_cache.cache_init_params import CacheInitParams
    from sglang.srt.mem_cache.memory_pool import ReqToTokenPool
    from sglang.srt.mem_cache.unified_cache.component_type import ComponentType
    from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache
    from sglang.srt.server_args import ServerArgs, set_global_server_args_for_scheduler

    set_global_server_args_for_scheduler(ServerArgs(model_path="dummy", page_size=shape.page_size))
    allocator = _paged(
        size=shape.tokens,
        dtype=shape.dtype,
        device="cpu",
        kvcache=device_pool(shape),
        need_sort=False,
    )
    requests = ReqToTokenPool(
        size=32, max_context_len=8192, device="cpu", enable_memory_saver=False
    )
    params = CacheInitParams(
        req_to_token_pool=requests,
        token_to_kv_pool_allocator=allocator,
        page_size=shape.page_size,
        disable=False,
        sliding_window_size=None,
        tree_components=(ComponentType.FULL,),
        tp_cache_group=tp_group,
    )
    cache = UnifiedRadixCache(params=params)
    cache.cache_init_params = params
    return cache, allocator, requests


def _of_kit(config: Any) -> tuple[Any, Any, Any]:
    from sglang.test.kits.unified_radix_cache import fixtures

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fixtures, "get_device", lambda: "cpu")
        patch.setattr(fixtures, "TokenToKVPoolAllocator", _paged)
        made: tuple[Any, Any, Any] = fixtures.build_fixture(config)
    return made


def _paged(*, kvcache: Any, **options: Any) -> Any:
    """SGLang gives a linker pages that begin at a multiple of the page size."""
    from sglang.srt.mem_cache.allocator import PagedTokenToKVPoolAllocator, TokenToKVPoolAllocator

    if kvcache.page_size == 1:
        return TokenToKVPoolAllocator(kvcache=kvcache, **options)
    return PagedTokenToKVPoolAllocator(kvcache=kvcache, page_size=kvcache.page_size, **options)
