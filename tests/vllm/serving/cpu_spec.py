"""vLLM's tiering spec with another worker: vLLM's own copies between GPU and host memory, and
refuses CPUs. All else is vLLM's: the manager, the host memory, and how tiers are loaded."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from vllm.v1.kv_offload.base import OffloadingWorker, TransferResult
from vllm.v1.kv_offload.cpu.shared_offload_region import SharedOffloadRegion
from vllm.v1.kv_offload.tiering.spec import TieringOffloadingSpec


class CopyWorker(OffloadingWorker):  # type: ignore[misc]  # Any, where there is no vllm
    """Copies with torch, at once. Its "GPU" is the KV cache of vLLM's CPU runner."""

    def __init__(self, kv_caches: Any, blocks_per_chunk: int, region: Any) -> None:
        self._group_refs = kv_caches.group_data_refs
        self._blocks_per_chunk = blocks_per_chunk
        self._region = region
        self._device = [each.tensor for each in kv_caches.tensors]
        self._host = [
            region.create_next_worker_view(each.page_size_bytes * blocks_per_chunk)
            for each in kv_caches.tensors
        ]
        self._finished: list[Any] = []

    def submit_store(self, job_id: int, src_spec: Any, dst_spec: Any) -> bool:
        began_s, size = time.monotonic(), 0
        for device, host in self._pages(src_spec, dst_spec):
            host.copy_(device)
            size += host.numel()
        self._finished.append(TransferResult(job_id, True, size, time.monotonic() - began_s))
        return True

    def submit_load(self, job_id: int, src_spec: Any, dst_spec: Any) -> bool:
        began_s, size = time.monotonic(), 0
        for device, host in self._pages(dst_spec, src_spec):
            device.copy_(host)
            size += host.numel()
        self._finished.append(TransferResult(job_id, True, size, time.monotonic() - began_s))
        return True

    def _pages(self, device_spec: Any, host_spec: Any) -> Iterator[tuple[Any, Any]]:
        """Each block's bytes on the device, and their place in the host memory. The first block of
        a group may lie in the middle of a chunk."""
        blocks, chunks = device_spec.block_ids.tolist(), iter(host_spec.block_ids.tolist())
        begin = 0
        for refs, count, first in zip(
            self._group_refs, device_spec.group_sizes, device_spec.block_indices, strict=True
        ):
            chunk = -1
            for number, block in enumerate(blocks[begin : begin + count], first):
                place = number % self._blocks_per_chunk
                if place == 0 or number == first:
                    chunk = next(chunks)
                for ref in refs:
                    size = ref.page_size_bytes
                    host = self._host[ref.tensor_idx][chunk]
                    yield (
                        self._device[ref.tensor_idx][block][:size],
                        host[place * size : (place + 1) * size],
                    )
            begin += count

    def get_finished(self) -> list[Any]:
        finished, self._finished = self._finished, []
        return finished

    def wait(self, job_ids: set[int]) -> None:
        pass

    def shutdown(self) -> None:
        self._device.clear()
        self._host.clear()
        self._region.cleanup()


class CpuTieringSpec(TieringOffloadingSpec):  # type: ignore[misc]
    _worker: Any

    def get_worker(self, kv_caches: Any) -> Any:
        if self._worker is None:
            region = SharedOffloadRegion(
                engine_id=self._engine_id,
                num_chunks=self.num_chunks,
                rank=self.config.parallel.rank,
                kv_bytes_per_chunk=self.kv_bytes_per_chunk,
                cpu_page_size=self.cpu_page_size_per_worker,
            )
            self._worker = CopyWorker(kv_caches, self.blocks_per_chunk, region)
        return self._worker
