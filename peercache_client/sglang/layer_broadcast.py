"""Replicated KV on several TP ranks: rank 0 loads it and broadcasts each layer to the others."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from sglang.srt.mem_cache.unified_cache.linker_mla_dedup import LinkerMLADedupBroadcaster


class LayerBroadcast:
    """For one rank. Its methods run on the scheduler's thread, as each of them but `close` may
    wait for all ranks."""

    def __init__(self, pools: Any, params: Any, tp_group: Any) -> None:
        """`pools`: SGLang's DevicePoolGroup; `params`: its CacheInitParams. Waits for all ranks."""
        self._tp_group = tp_group
        self._layers = pools.num_layers
        self._broadcaster = LinkerMLADedupBroadcaster.build(
            pools, params.tp_cache_group, params.attn_tp_cache_group
        )
        self._started: dict[int, tuple[int, Any, Sequence[Any]]] = {}

    @property
    def is_source(self) -> bool:
        return bool(self._broadcaster.is_src)

    def agreed(self, queued: Mapping[str, Sequence[Any]]) -> bool:
        """Whether all ranks have queued the same pages in the same order. All ranks must ask for
        each batch, also for an empty one."""
        plan = [
            (rid, [(each.name, list(each.keys)) for each in transfers])
            for rid, transfers in queued.items()
        ]
        mine = hashlib.sha256(repr(plan).encode()).digest()
        all_ranks: list[bytes | None] = [None] * torch.distributed.get_world_size(self._tp_group)
        torch.distributed.all_gather_object(all_ranks, mine, group=self._tp_group)
        return all(each == mine for each in all_ranks)

    def start(self, index: int, transfers: Sequence[Any], ready: Sequence[Any]) -> None:
        """The pools may be written after the events `ready`."""
        indices: dict[Any, list[Any]] = {}
        for each in transfers:
            indices.setdefault(each.name, []).append(each.host_indices)
        stream = _current_stream()
        prepared = self._broadcaster.prepare_broadcast(
            {name: torch.cat(parts) for name, parts in indices.items()}, stream
        )
        self._started[index] = (0, prepared, ready)

    def layer_is_ready(self, index: int, layer: int) -> None:
        """Broadcasts the layers up to this one that have not been. SGLang may wait several times
        for a layer, or skip one."""
        batch = self._started.pop(index, None)
        if batch is None:
            return
        first, prepared, ready = batch
        stream = _current_stream()
        if first == 0 and stream is not None:
            for event in ready:
                stream.wait_event(event)
        for each in range(first, layer + 1):
            self._broadcaster.broadcast_loaded_layer(each, prepared)
        if layer + 1 < self._layers:
            self._started[index] = (max(first, layer + 1), prepared, ready)

    def reset(self) -> None:
        self._started.clear()

    def close(self) -> None:
        self._broadcaster.destroy()


def _current_stream() -> Any:
    return torch.cuda.current_stream() if torch.cuda.is_available() else None
