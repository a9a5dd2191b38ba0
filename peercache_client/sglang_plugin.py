"""Plug-in for SGLang: huge pages and NUMA binding for its host pools.

SGLang loads it through its entry point (group `sglang.srt.plugins`) in every process, before it
creates host pools. The plug-in acts only if the storage backend's extra config has one of

    "huge_pages": "2MiB" or "1GiB"      must be reserved: sysctl vm.nr_hugepages
    "numa_node": 0                      a node close to the GPU

It then replaces the memory that `"allocator": "shm"` would allocate. If that fails, the log says
why, and SGLang allocates as usual. No sglang module is imported before SGLang asks for memory.
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
from peercache_client.notes import say

_TARGET: Final = "sglang.srt.mem_cache.pool_host.common.ShmHostTensorAllocator.allocate"
_HUGE_PAGE_BYTES: Final = {"": 0, "2MiB": 2 << 20, "1GiB": 1 << 30}
_MFD_HUGETLB: Final = 4
_MFD_HUGE_SHIFT: Final = 26
_MADV_POPULATE_WRITE: Final = 23
_MBIND_SYSCALL: Final = {"x86_64": 237, "aarch64": 235}
_MPOL_BIND: Final = 2
_NUMA_NODES_MAX: Final = 1024


def install() -> None:
    """The entry point that SGLang calls."""
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    HookRegistry.register(_TARGET, allocate, HookType.AROUND)


def allocate(
    original: Callable[..., Any], allocator: Any, dims: Any, dtype: Any, device: str
) -> Any:
    """Wraps ShmHostTensorAllocator.allocate: returns a tensor in a memfd that the allocator
    keeps."""
    huge_page_bytes, numa_node = _wishes()
    if not huge_page_bytes and numa_node is None:
        return original(allocator, dims, dtype=dtype, device=device)
    import torch

    count = math.prod(dims)
    try:
        fd, mapping = _make(count * dtype.itemsize, huge_page_bytes, numa_node)
    except OSError as error:
        say(
            logging.WARNING,
            "cannot get %d bytes of host memory with huge_pages=%d, numa_node=%s (%s): using "
            "ordinary memory instead. For huge_pages, reserve huge pages before SGLang starts: "
            "sysctl vm.nr_hugepages=N for 2MiB, or hugepagesz=1G hugepages=N on the kernel's "
            "command line for 1GiB",
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
    """Returns the huge page size in bytes (0: none) and the NUMA node (None: any). ValueError."""
    from sglang.srt.runtime_context import get_memory

    # The config must be JSON text: SGLang selects this allocator only if it finds it there.
    extra = json.loads(get_memory().hicache_storage_backend_extra_config or "{}")
    huge_pages = extra.get("huge_pages", "")
    if huge_pages not in _HUGE_PAGE_BYTES:
        raise ValueError(f"huge_pages is {huge_pages!r}: 2MiB or 1GiB")
    node = extra.get("numa_node")
    if node is not None and not (isinstance(node, int) and 0 <= node < _NUMA_NODES_MAX):
        raise ValueError(f"numa_node is {node!r}: the number of a node, 0 or more")
    return _HUGE_PAGE_BYTES[huge_pages], node


def _make(size_bytes: int, huge_page_bytes: int, numa_node: int | None) -> tuple[int, mmap.mmap]:
    """Creates a memfd and its mapping, with all pages allocated. OSError."""
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
            # Must precede the first access, which fixes the node of each page.
            _bind(_ipc.address_of(memoryview(mapping)), size_bytes, numa_node)
        # Populate now: running out of memory later would raise SIGBUS in the middle of a copy.
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
    # mbind reads one bit less than maxnode says.
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
