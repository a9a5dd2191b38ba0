"""The scheduler's side of vLLM's offloading, real in all parts but the scheduler itself.

vLLM's own spec makes the manager, the host memory and, by its module path, our tier. The methods
here call the manager as `OffloadingConnectorScheduler` does.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.clock import seconds
from harness.waiting import eventually
from vllm.utils.hashing import get_hash_fn_by_name
from vllm.v1.core import kv_cache_utils
from vllm.v1.kv_offload.base import LookupResult, ReqContext, ScheduleEndContext, make_offload_key
from vllm.v1.kv_offload.config import (
    OffloadingCacheConfig,
    OffloadingConfig,
    OffloadingGroupConfig,
    OffloadingModelConfig,
    OffloadingParallelConfig,
)
from vllm.v1.kv_offload.tiering.spec import TieringOffloadingSpec

CHUNK_BYTES = 16_384
_TOKENS_PER_BLOCK = 16
PARALLEL = OffloadingParallelConfig(
    rank=0,
    world_size=1,
    tp_size=1,
    pp_size=1,
    pcp_size=1,
    dcp_size=1,
    data_parallel_index=0,
    data_parallel_size=1,
    data_parallel_rank_local=None,
    is_parallelism_agnostic=False,
)


def offloading_config(extra_config: dict[str, Any], **changes: Any) -> Any:
    config = OffloadingConfig(
        groups=(OffloadingGroupConfig(_TOKENS_PER_BLOCK, ("layers.0", "layers.1"), 0),),
        worker_kv_bytes_per_block=CHUNK_BYTES,
        enable_kv_cache_events=True,
        extra_config=extra_config,
        engine_id=uuid.uuid4().hex,
        model=OffloadingModelConfig("test/model", "bfloat16"),
        cache=OffloadingCacheConfig(_TOKENS_PER_BLOCK, 1),
        parallel=PARALLEL,
        kv_cache_layout="LBHNC",
    )
    return replace(config, **changes)


def keys_of(prompt: str, count: int, group: int = 0) -> list[Any]:
    return [
        make_offload_key(hashlib.sha256(f"{prompt}/{number}".encode()).digest(), group)
        for number in range(count)
    ]


def content_of(key: bytes, salt: str = "") -> bytes:
    """The bytes that belong to a key."""
    seed = hashlib.sha256(key + salt.encode()).digest()
    return seed * (CHUNK_BYTES // len(seed))


class OffloadNode:
    """One engine's manager beside one daemon. Not thread safe."""

    def __init__(
        self,
        socket_path: Path,
        *,
        slots: int = 16,
        hash_algorithm: str = "sha256",
        tier: dict[str, Any] | None = None,
        **changes: Any,
    ) -> None:
        """`tier`: more keys of the tier's entry. `changes`: other values in OffloadingConfig."""
        entry = {
            "type": "PeerCacheTier",
            "module_path": "peercache_client.vllm",
            "socket_path": str(socket_path),
            "timeout_s": min(seconds(5.0), 60.0),
            "prefill_tokens_per_s": 0,  # it computes in no time, so all loads would be cut
            **(tier or {}),
        }
        extra = {
            "cpu_bytes_to_use": slots * CHUNK_BYTES,
            "spec_name": "TieringOffloadingSpec",
            "secondary_tiers": [entry],
        }
        # As in vLLM, the root hash is there before the first request, and not before the manager.
        self.manager = TieringOffloadingSpec(offloading_config(extra, **changes)).get_manager()
        kv_cache_utils.init_none_hash(get_hash_fn_by_name(hash_algorithm))
        self.extra_config = extra
        self._requests = 0
        self._closed = False

    @property
    def tier(self) -> Any:
        return self.manager.secondary_tiers[0]

    @property
    def memory(self) -> Any:
        return self.manager.primary_tier.get_kv_memoryview()

    def paint(self, byte: int) -> None:
        """Fills all slots. Call it while nothing is in transfer."""
        flat = self.memory.cast("B")
        flat[:] = bytes([byte]) * flat.nbytes

    # --- the life of a request ---------------------------------------------------------------

    def begin(self, keys: Sequence[Any], req_id: str = "", **options: Any) -> Any:
        """`options`: of the ReqContext."""
        self._requests += 1
        request = ReqContext(req_id or f"request-{self._requests}", **options)
        for number, key in enumerate(keys):
            request.set_offload_key_position(key, (number + 1) * _TOKENS_PER_BLOCK)
        self.manager.on_new_request(request)
        return request

    def step(self, scheduled: Sequence[Any] = ()) -> None:
        names = [request.req_id for request in scheduled]
        self.manager.on_schedule_end(ScheduleEndContext(names, ()))

    def settle(self) -> None:
        """Steps until no transfer is under way."""

        def idle() -> bool:
            self.step()
            return not self.manager.has_pending_work()

        eventually(idle, 30, "the end of all transfers")

    def compute(self, request: Any, keys: Sequence[Any], salt: str = "") -> None:
        """Writes the chunks into slots, as the worker does after the model has computed them. vLLM
        then hands them to the tier as a set."""
        output = self.manager.prepare_store(keys, request)
        assert output is not None, "no slots are free"
        for key, slot in zip(output.keys_to_store, output.store_spec.chunk_ids, strict=True):
            self.memory.cast("B")[slot * CHUNK_BYTES : (slot + 1) * CHUNK_BYTES] = content_of(
                key, salt
            )
        self.manager.complete_store(set(output.keys_to_store), request)

    def look_up(self, request: Any, keys: Sequence[Any]) -> int | None:
        """The number of leading chunks that are ready; None: ask again after a step."""
        found, later = 0, False
        for key in keys:
            result = self.manager.lookup(key, request)
            if result is LookupResult.MISS:
                break
            later |= result is not LookupResult.HIT
            found += result is not LookupResult.RETRY
        return None if later else found

    def wait_found(self, request: Any, keys: Sequence[Any]) -> int:
        """Asks in step after step, as the scheduler does for a waiting request."""
        jobs = self.manager._job_id_counter
        answers: list[int] = []

        def scheduled() -> bool:
            found = self.look_up(request, keys)
            self.step([request] if found is not None else [])
            answers.extend([] if found is None else [found])
            loads = self.manager._job_id_counter - jobs
            assert loads <= 10 * len(keys), "the request loads and evicts for ever"
            return bool(answers)

        eventually(scheduled, 60, "the request to be scheduled")
        return answers[0]

    def wait_answered(self, request: Any, keys: Sequence[Any]) -> None:
        """Until the daemon has answered the lookups. Nothing is loaded yet."""
        self.look_up(request, keys)

        def answered() -> bool:
            self.step()
            return self.tier.lookup(keys[0], request) is not LookupResult.RETRY

        eventually(answered, 20, "the daemon's answer")

    def begin_loads(self, request: Any, keys: Sequence[Any]) -> None:
        """Until the loads of what the daemon has are submitted."""
        self.wait_answered(request, keys)
        self.look_up(request, keys)
        self.step()

    def read(self, request: Any, keys: Sequence[Any]) -> list[bytes]:
        """The chunks' bytes, as the worker copies them to the device."""
        slots = self.manager.prepare_load(keys, request).chunk_ids
        flat = self.memory.cast("B")
        pages = [bytes(flat[slot * CHUNK_BYTES : (slot + 1) * CHUNK_BYTES]) for slot in slots]
        self.manager.complete_load(keys, request)
        return pages

    # --- whole requests ----------------------------------------------------------------------

    def prefill(self, keys: Sequence[Any], at_once: int = 8, salt: str = "") -> None:
        """A request that computes all its chunks. Its stores have ended."""
        request = self.begin(keys)
        for begin in range(0, len(keys), at_once):
            self.compute(request, keys[begin : begin + at_once], salt)
            self.settle()
        self.manager.on_request_finished(request)

    def reuse(self, keys: Sequence[Any]) -> list[bytes]:
        """A request that loads what it finds. Returns the bytes of its leading chunks, which it
        checks."""
        request = self.begin(keys)
        found = self.wait_found(request, keys)
        pages = self.read(request, keys[:found])
        self.manager.on_request_finished(request)
        assert pages == [content_of(key) for key in keys[:found]], "wrong bytes were loaded"
        return pages

    def found(self, keys: Sequence[Any]) -> int:
        return len(self.reuse(keys))

    def counted(self) -> dict[tuple[str, str], float]:
        """The tier's metric since the last call."""
        stats = self.manager.get_stats()
        values: dict[tuple[str, str], float] = (
            {} if stats is None else stats.data["data"].get("vllm:kv_offload_peercache_chunks", {})
        )
        return values

    def evict_host_memory(self) -> None:
        """As a sleep or an update of the weights does."""
        self.manager.reset_cache()
        # vllm 0.33 loads nothing until its workers have reported their jobs.
        getattr(self.manager, "on_reset_flushed", lambda: None)()

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self.manager.shutdown()


def eventually_found(node: OffloadNode, keys: Sequence[Any]) -> None:
    """Until another daemon has told where the pages are."""
    found: Callable[[], bool] = lambda: node.found(keys) == len(keys)  # noqa: E731
    eventually(found, 20, "the chunks of the other node")
