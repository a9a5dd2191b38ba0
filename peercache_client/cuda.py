"""Names memory of NVIDIA's GPUs for the daemon, through the driver (libcuda.so.1).

The calling thread must have a current CUDA context, as it has after a use of torch's GPU. Source:
CUDA Driver API reference. `native/device/cuda.cc` is the other side.
"""

from __future__ import annotations

import ctypes
import functools
from ctypes import byref, c_int, c_size_t, c_uint64, c_void_p
from typing import Any, Final, NamedTuple

from peercache_client.device import DeviceMemory, Kind

_INVALID_VALUE: Final = 1
_DEVICE_ORDINAL: Final = 9  # CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
_POSIX_DESCRIPTOR: Final = 1  # CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR


class Exported(NamedTuple):
    memory: DeviceMemory  # its `fd` is the caller's to close
    offset: int  # of the address in the allocation, bytes
    address: int  # of the allocation


@functools.cache
def _driver() -> Any:
    return ctypes.CDLL("libcuda.so.1")


def _check(name: str, code: int) -> None:
    if code:
        text = ctypes.c_char_p()
        _driver().cuGetErrorString(c_int(code), byref(text))
        raise OSError(f"{name}: {(text.value or b'error %d' % code).decode()}")


def _call(name: str, *arguments: object) -> None:
    _check(name, getattr(_driver(), name)(*arguments))


def export(address: int, size_bytes: int = 1) -> Exported:
    """The allocation around these bytes of a GPU. OSError, also if they are in several allocations.

    Memory of cudaMalloc is named by CUDA IPC, memory of the virtual memory management API by a
    descriptor. PyTorch's expandable segments have an allocation for each 20 MB.
    """
    base, size, ordinal = c_uint64(), c_size_t(), c_int()
    _call("cuMemGetAddressRange_v2", byref(base), byref(size), c_uint64(address))
    if address + size_bytes > base.value + size.value:
        raise OSError(
            f"the {size_bytes} bytes at {address:#x} are in several allocations of the GPU"
        )
    _call("cuPointerGetAttribute", byref(ordinal), c_int(_DEVICE_ORDINAL), c_uint64(address))
    device, uuid = c_int(), (ctypes.c_uint8 * 16)()
    _call("cuDeviceGet", byref(device), ordinal)
    _call("cuDeviceGetUuid_v2", byref(uuid), device)
    handle = (ctypes.c_uint8 * 64)()
    code = _driver().cuIpcGetMemHandle(byref(handle), base)
    if code == _INVALID_VALUE:  # not of cudaMalloc
        memory = DeviceMemory(Kind.cuda_posix, size.value, bytes(uuid), fd=_descriptor(base.value))
    else:
        _check("cuIpcGetMemHandle", code)
        memory = DeviceMemory(Kind.cuda_ipc, size.value, bytes(uuid), bytes(handle))
    return Exported(memory, address - base.value, base.value)


def _descriptor(address: int) -> int:
    allocation, fd = c_uint64(), c_int(-1)
    _call("cuMemRetainAllocationHandle", byref(allocation), c_void_p(address))
    try:
        _call(
            "cuMemExportToShareableHandle",
            *(byref(fd), allocation, c_int(_POSIX_DESCRIPTOR), c_uint64(0)),
        )
    finally:
        _driver().cuMemRelease(allocation)
    return fd.value
