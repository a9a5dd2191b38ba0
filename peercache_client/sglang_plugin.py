"""Huge pages and NUMA binding for SGLang's host pools: a plug-in of SGLang.

SGLang loads it by its entry point (group `sglang.srt.plugins`) in every process, before there are
pools. It does nothing until the extra config of the storage backend has one of

    "huge_pages": "2MiB" or "1GiB"      reserved ones: sysctl vm.nr_hugepages
    "numa_node": 0                      the node whose memory the GPU is near to

and then makes the memory that `"allocator": "shm"` would make. Where that fails the log says why,
and SGLang's own allocation follows. Nothing of sglang is imported before it asks for memory.
"""

from __future__ import annotations

import ctypes
import json
import logging
import math
import mmap
import os
from collections.abc import Callable
from typing import Any, Final

from peercache_client import _ipc

log = logging.getLogger("peercache_client")

_TARGET: Final = "sglang.srt.mem_cache.pool_host.common.ShmHostTensorAllocator.allocate"
_HUGE_PAGE_BYTES: Final = {"": 0, "2MiB": 2 << 20, "1GiB": 1 << 30}
_MFD_HUGETLB: Final = 4
_MFD_HUGE_SHIFT: Final = 26
_MADV_POPULATE_WRITE: Final = 23
_MBIND_SYSCALL: Final = {"x86_64": 237, "aarch64": 235}
_MPOL_BIND: Final = 2
_NUMA_NODES_MAX: Final = 1024


def install() -> None:
    """SGLang's entry point."""
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    HookRegistry.register(_TARGET, allocate, HookType.AROUND)


def allocate(
    original: Callable[..., Any], allocator: Any, dims: Any, dtype: Any, device: str
) -> Any:
    """Around ShmHostTensorAllocator.allocate: a tensor in a memfd that the allocator keeps."""
    huge_page_bytes, numa_node = _wishes()
    if not huge_page_bytes and numa_node is None:
        return original(allocator, dims, dtype=dtype, device=device)
    import torch

    count = math.prod(dims)
    try:
        fd, mapping = _make(count * dtype.itemsize, huge_page_bytes, numa_node)
    except OSError as error:
        log.warning(
            "%d bytes of host memory with huge_pages=%d, numa_node=%s cannot be had (%s); it is "
            "ordinary memory instead. Reserve huge pages before SGLang starts: "
            "sysctl vm.nr_hugepages=N, or hugepages=N for 1GiB ones on the kernel's command line",
            count * dtype.itemsize,
            huge_page_bytes,
            numa_node,
            error.strerror,
        )
        return original(allocator, dims, dtype=dtype, device=device)
    allocator.dtype = dtype
    allocator.dims = dims
    allocator.fds.append(fd)
    allocator.mms.append(mapping)
    return torch.frombuffer(mapping, dtype=dtype, count=count).reshape(dims)


def _wishes() -> tuple[int, int | None]:
    """Bytes of a huge page, 0 for none; NUMA node, None for any. ValueError."""
    from sglang.srt.runtime_context import get_memory

    # As text, or else SGLang would not have asked this allocator.
    extra = json.loads(get_memory().hicache_storage_backend_extra_config or "{}")
    huge_pages = extra.get("huge_pages", "")
    if huge_pages not in _HUGE_PAGE_BYTES:
        raise ValueError(f"huge_pages is {huge_pages!r}: 2MiB or 1GiB")
    node = extra.get("numa_node")
    if node is not None and not (isinstance(node, int) and 0 <= node < _NUMA_NODES_MAX):
        raise ValueError(f"numa_node is {node!r}: the number of a node, 0 or more")
    return _HUGE_PAGE_BYTES[huge_pages], node


def _make(size_bytes: int, huge_page_bytes: int, numa_node: int | None) -> tuple[int, mmap.mmap]:
    """A memfd and its mapping, with all its memory. OSError."""
    flags = os.MFD_CLOEXEC
    unit = mmap.PAGESIZE
    if huge_page_bytes:
        flags |= _MFD_HUGETLB | (huge_page_bytes.bit_length() - 1) << _MFD_HUGE_SHIFT
        unit = huge_page_bytes
    size_bytes = -(-size_bytes // unit) * unit
    fd = os.memfd_create("sglang-host-pool", flags)
    try:
        os.ftruncate(fd, size_bytes)
        mapping = mmap.mmap(fd, size_bytes, mmap.MAP_SHARED)
        if numa_node is not None:
            # Before the first touch: pages are placed then, and stay.
            _bind(_ipc.address_of(memoryview(mapping)), size_bytes, numa_node)
        # Taken now: later, a lack of memory would be a SIGBUS in the middle of a copy.
        mapping.madvise(_MADV_POPULATE_WRITE)
    except BaseException:
        os.close(fd)
        raise
    return fd, mapping


def _bind(address: int, size_bytes: int, numa_node: int) -> None:
    number = _MBIND_SYSCALL.get(os.uname().machine)
    if number is None:
        raise OSError(38, f"numa_node is not supported on {os.uname().machine}")
    mask = (ctypes.c_ulong * (_NUMA_NODES_MAX // 64))()
    mask[numa_node // 64] = 1 << numa_node % 64
    libc = ctypes.CDLL(None, use_errno=True)
    # mbind counts one bit more than it reads.
    result = libc.syscall(
        ctypes.c_long(number),
        ctypes.c_void_p(address),
        ctypes.c_ulong(size_bytes),
        ctypes.c_int(_MPOL_BIND),
        mask,
        ctypes.c_ulong(_NUMA_NODES_MAX + 1),
        ctypes.c_uint(0),
    )
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"mbind to node {numa_node}: {os.strerror(code)}")
