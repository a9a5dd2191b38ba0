"""vLLM's tiering spec with another worker: vLLM's own copies between GPU and host memory, and
refuses CPUs. All else is vLLM's: the manager, the host memory, and how tiers are loaded."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from vllm.v1.kv_offload.base import OffloadingWorker, TransferResult
from vllm.v1.kv_offload.cpu.gpu_worker import _build_copy_plan, _canonical_block_sizes
from vllm.v1.kv_offload.cpu.shared_offload_region import SharedOffloadRegion
from vllm.v1.kv_offload.tiering.spec import TieringOffloadingSpec


class CopyWorker(OffloadingWorker):  # type: ignore[misc]  # Any, where there is no vllm
    """Copies with torch, at once. Its "GPU" is the KV cache of vLLM's CPU runner. The places of the
    bytes are vLLM's: it lays out the region, and plans the copies of canonical pages."""

    def __init__(self, kv_caches: Any, blocks_per_chunk: int, region: Any, canonical: bool) -> None:
        self._group_refs = kv_caches.group_data_refs
        self._blocks_per_chunk = blocks_per_chunk
        self._region = region
        self._canonical = canonical
        self._device = [each.tensor for each in kv_caches.tensors]
        if canonical:
            sizes = _canonical_block_sizes(self._group_refs, len(kv_caches.tensors))
            view = region.create_next_canonical_view
        else:
            sizes = [each.page_size_bytes for each in kv_caches.tensors]
            view = region.create_next_worker_view
        self._block_bytes = sizes
        self._host = [view(size * blocks_per_chunk) for size in sizes]
        self._finished: list[Any] = []

    def submit_store(self, job_id: int, src_spec: Any, dst_spec: Any) -> bool:
        began_s, size = time.monotonic(), 0
        for device, host in self._pages(src_spec, dst_spec, storing=True):
            host.copy_(device)
            size += host.numel()
        self._finished.append(TransferResult(job_id, True, size, time.monotonic() - began_s))
        return True

    def submit_load(
        self, job_id: int, src_spec: Any, dst_spec: Any, expedited: bool = False
    ) -> bool:
        began_s, size = time.monotonic(), 0
        for device, host in self._pages(dst_spec, src_spec, storing=False):
            device.copy_(host)
            size += host.numel()
        self._finished.append(TransferResult(job_id, True, size, time.monotonic() - began_s))
        return True

    def _pages(self, device_spec: Any, host_spec: Any, storing: bool) -> Iterator[tuple[Any, Any]]:
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
                    device = self._device[ref.tensor_idx][block]
                    size = self._block_bytes[ref.tensor_idx]
                    host = self._host[ref.tensor_idx][chunk][place * size : (place + 1) * size]
                    if not self._canonical:
                        yield device[: ref.page_size_bytes], host[: ref.page_size_bytes]
                        continue
                    page = chunk * self._blocks_per_chunk + place
                    if not storing or ref.mapping.is_writer(page):
                        yield from _fragments(ref, device, host)
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


def _fragments(ref: Any, device: Any, host: Any) -> Iterator[tuple[Any, Any]]:
    """The parts of a canonical page that this rank has."""
    plan = _build_copy_plan(ref, gpu_to_cpu=True)
    for begin, place, size in zip(
        plan.frag_offsets_src.tolist(),
        plan.frag_offsets_dst.tolist(),
        plan.frag_sizes.tolist(),
        strict=True,
    ):
        yield device[begin : begin + size], host[place : place + size]


class CpuTieringSpec(TieringOffloadingSpec):  # type: ignore[misc]
    _worker: Any

    def get_worker(self, kv_caches: Any) -> Any:
        """As vLLM's create_worker."""
        if self._worker is None:
            canonical = self.config.canonical_layout
            region = SharedOffloadRegion(
                engine_id=self._engine_id,
                num_chunks=self.num_chunks,
                rank=0 if self.replicated_layout else self.config.parallel.rank,
                kv_bytes_per_chunk=self.kv_bytes_per_chunk,
                cpu_page_size=self.cpu_page_size_per_worker,
            )
            if canonical:
                self._validate_canonical_refs(kv_caches)
            self._worker = CopyWorker(kv_caches, self.blocks_per_chunk, region, canonical)
        return self._worker
