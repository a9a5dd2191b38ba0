"""LMCache's storage manager beside one daemon: the part of its server that has L1 and L2.

All of it is LMCache's own: the L1 memory, the controllers that store and prefetch, and the plugin
loader, which loads our adapter by its module path. The methods here call the manager as the
server's modules do.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Sequence
from inspect import signature
from pathlib import Path
from typing import Any

import torch
from harness.clock import seconds
from harness.waiting import eventually
from lmcache.v1.distributed import api
from lmcache.v1.distributed.api import MemoryLayoutDesc, ObjectKey
from lmcache.v1.distributed.config import (
    EvictionConfig,
    L1ManagerConfig,
    L1MemoryManagerConfig,
    StorageManagerConfig,
)
from lmcache.v1.distributed.l2_adapters.config import L2AdaptersConfig
from lmcache.v1.distributed.l2_adapters.plugin_l2_adapter import PluginL2AdapterConfig
from lmcache.v1.distributed.serde import SerdeConfig
from lmcache.v1.distributed.storage_manager import StorageManager

MODEL = "test/model"
_SHAPE = (2, 4, 16, 64)  # K and V, layers, tokens, hidden size
CHUNK_BYTES = 2 * 4 * 16 * 64 * 2
RANK = ObjectKey.ComputeKVRank(world_size=1, global_rank=0, local_world_size=1, local_rank=0)


def layout(dtype: Any = torch.bfloat16, shape: tuple[int, ...] = _SHAPE) -> Any:
    return MemoryLayoutDesc([torch.Size(shape)], [dtype])


def keys_of(prompt: str, count: int, **changes: Any) -> list[Any]:
    fields = {"model_name": MODEL, "kv_rank": RANK, **changes}
    return [
        ObjectKey(hashlib.sha256(f"{prompt}/{number}".encode()).digest(), **fields)
        for number in range(count)
    ]


def content_of(key: Any, size_bytes: int = CHUNK_BYTES) -> bytes:
    """The bytes that belong to a key: small whole numbers in bfloat16, which FP8 keeps."""
    seed = hashlib.sha256(repr(key).encode()).digest()
    numbers = torch.tensor([byte % 16 for byte in seed]).bfloat16()
    exact = bytes(numbers.view(torch.uint8).tolist())
    return exact * (size_bytes // len(exact))


def storage_config(
    entry: PluginL2AdapterConfig, l1_bytes: int, *, shared_memory: bool, store_policy: str
) -> StorageManagerConfig:
    name = f"lmcache_l1_pool_test_{uuid.uuid4().hex[:12]}" if shared_memory else ""
    memory = L1MemoryManagerConfig(size_in_bytes=l1_bytes, use_lazy=False, shm_name=name)
    return StorageManagerConfig(
        l1_manager_config=L1ManagerConfig(memory_config=memory),
        eviction_config=EvictionConfig(eviction_policy="LRU"),
        l2_adapter_config=L2AdaptersConfig([entry]),
        store_policy=store_policy,
    )


def _spec_of_0_5_5(rows: dict[tuple[int, int], list[Any]], described: Any, policy: str) -> Any:
    """LMCache 0.5.5 has one list of keys: those of the first chunk in all rows, then the next."""
    groups = {group for group, _ in rows}
    return api.PrefetchRequestSpec(
        keys=[key for chunk in zip(*rows.values(), strict=True) for key in chunk],
        group_layout_descs=dict.fromkeys(range(max(groups) + 1), described),
        policy=api.TrimPolicy.PREFIX if policy == "prefix" else api.TrimPolicy.SPARSE,
        attn_desc=api.AttnWindowDesc([-1] * len(groups), world_size=len(rows) // len(groups)),
    )


class StorageNode:
    """One LMCache server's storage. Not thread safe."""

    def __init__(
        self,
        socket_path: Path,
        *,
        l1_bytes: int = 256 * CHUNK_BYTES,
        shared_memory: bool = True,
        store_policy: str = "default",
        params: dict[str, Any] | None = None,
        serde: dict[str, Any] | None = None,
    ) -> None:
        """`params`: more keys of the entry's `adapter_params`. `serde`: of the entry, see
        LMCache's SerdeConfig."""
        entry = PluginL2AdapterConfig.from_dict(
            {
                "type": "plugin",
                "module_path": "peercache_client.lmcache",
                "class_name": "PeerCacheAdapter",
                "adapter_params": {
                    "socket_path": str(socket_path),
                    "timeout_s": min(seconds(5.0), 60.0),
                    **(params or {}),
                },
            }
        )
        if serde is not None:
            entry.serde_config = SerdeConfig(**serde)
        self.manager = StorageManager(
            storage_config(entry, l1_bytes, shared_memory=shared_memory, store_policy=store_policy)
        )
        self._closed = False

    @property
    def adapter(self) -> Any:
        """Ours, also inside a serializer's wrapper."""
        [(_, adapter)] = self.manager.l2_adapters()
        return getattr(adapter, "inner_adapter", adapter)

    # --- stores ------------------------------------------------------------------------------

    def compute(self, keys: Sequence[Any], layout_desc: Any = None) -> None:
        """Writes objects into L1, as an engine does. LMCache then stores them in L2."""
        reserve = self.manager.reserve_write
        more = ["new"] if "mode" in signature(reserve).parameters else []  # 0.5.5
        reserved = reserve(list(keys), layout_desc or layout(), *more)
        assert len(reserved) == len(keys), "L1 is full"
        for key, memory_object in reserved.items():
            memory_object.raw_data[: memory_object.get_size()] = torch.frombuffer(
                bytearray(content_of(key, memory_object.get_size())), dtype=torch.uint8
            )
        self.manager.finish_write(list(reserved))

    def prefill(self, keys: Sequence[Any], layout_desc: Any = None) -> None:
        """A prompt that is computed. Its stores have ended, well or badly."""
        expected = self._tried() + len(keys)
        self.compute(keys, layout_desc)

        def ended() -> bool:
            status = self.manager.report_status()["store_controller"]
            return self._tried() >= expected and not status["in_flight_task_count"]

        eventually(ended, 60, "the end of all stores")

    def _tried(self) -> int:
        return sum(self.adapter.report_status()["pages"].get("store", {}).values())

    # --- prefetches --------------------------------------------------------------------------

    def begin_prefetch(
        self, keys: Sequence[Any], layout_desc: Any = None, policy: str = "prefix"
    ) -> Any:
        rows: dict[tuple[int, int], list[Any]] = {}
        for key in keys:
            rows.setdefault((key.object_group_id, key.kv_rank), []).append(key)
        described = layout_desc or layout()
        if not hasattr(api, "PrefetchTaskSpec"):
            return self.manager.submit_prefetch_task(_spec_of_0_5_5(rows, described, policy))
        groups = [api.GroupedObjectKeys(row, group, described) for (group, _), row in rows.items()]
        return self.manager.submit_prefetch_task(
            api.PrefetchTaskSpec(groups, fetching_policy=policy)
        )

    def hits(self, handle: Any, *, rows: int = 1, from_l2: bool = True) -> list[list[int]]:
        """Waits for the prefetch. Returns the places of its hits in each row of keys."""
        assert self.manager.wait_prefetch_status(handle, seconds(60)), "LMCache waits for ever"
        result = self.manager.query_prefetch_status(handle)
        assert result is not None
        if hasattr(result, "hit_cells"):
            l1_hits = result.l1_hit_count
            found = [cells.get_indices_list() for cells in result.hit_cells]
        else:  # 0.5.5: one bitmap over all keys
            l1_hits = len(handle.l1_found_indices)
            places = result.get_indices_list()
            found = [[at // rows for at in places if at % rows == row] for row in range(rows)]
        assert not (from_l2 and l1_hits), "these chunks were in L1"
        return found

    def end_prefetch(self, keys: Sequence[Any], handle: Any, *, from_l2: bool = True) -> int:
        """How many chunks of the prompt are there. Compares their bytes. For one row of keys."""
        [places] = self.hits(handle, from_l2=from_l2)
        hits = [keys[place] for place in places]
        if hits:
            with self.manager.read_prefetched_results(hits) as objects:
                assert objects is not None
                for key, memory_object in zip(hits, objects, strict=True):
                    size_bytes = memory_object.get_size()
                    read = bytes(memory_object.byte_array)
                    assert read == content_of(key, size_bytes), "wrong bytes were loaded"
            self.manager.finish_read_prefetched(hits)
        return len(hits)

    def found(self, keys: Sequence[Any], layout_desc: Any = None, policy: str = "prefix") -> int:
        """A request for a prompt that L1 does not have."""
        self.forget_l1()
        return self.end_prefetch(keys, self.begin_prefetch(keys, layout_desc, policy))

    def looked_up(self, keys: Sequence[Any], hints: dict[int, Any]) -> list[int]:
        """The places of the keys that the adapter finds, with these layouts as LMCache's hint."""
        task = self.adapter.submit_lookup_and_lock_task(list(keys), hints)
        found: list[Any] = []

        def answered() -> bool:
            found[:] = [self.adapter.query_lookup_and_lock_result(task)]
            return found != [None]

        eventually(answered, 20, "the lookup")
        return [place for place in range(len(keys)) if found[0].test(place)]

    def forget_l1(self) -> None:
        """Removes all objects from L1, and their bytes with them."""
        self.manager.clear()
        used_bytes, _ = self.manager.get_l1_usage()
        assert used_bytes == 0, "something still uses L1"
        memory = self.manager.l1_memory_desc
        self._whole(memory.ptr, memory.size)[:] = b"\xa5" * memory.size

    @staticmethod
    def _whole(address: int, size_bytes: int) -> memoryview:
        from peercache_client import _ipc

        return _ipc.view_at(address, size_bytes)

    def counted(self) -> dict[str, dict[str, int]]:
        pages: dict[str, dict[str, int]] = self.adapter.report_status()["pages"]
        return pages

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self.manager.close()


def eventually_found(node: StorageNode, keys: Sequence[Any]) -> None:
    """Until another daemon has told where the pages are."""
    eventually(lambda: node.found(keys) == len(keys), 20, "the chunks of the other node")
