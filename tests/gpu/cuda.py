"""The few CUDA driver calls that the tests need, through ctypes, so that no package is needed.

`cudaHostRegister`, which SGLang calls on its host pools, is `cuMemHostRegister` underneath.
"""

from __future__ import annotations

import ctypes
import time
from ctypes import byref, c_int, c_size_t, c_uint, c_uint64, c_void_p
from typing import Final

_PORTABLE: Final = 1  # CU_MEMHOSTREGISTER_PORTABLE and CU_MEMHOSTALLOC_PORTABLE
_OUT_OF_THE_WAY: Final = 1  # CU_STREAM_NON_BLOCKING


class NoGpu(Exception):
    """No GPU can be used; the text says why."""


class Gpu:
    """The first GPU, for one thread (`use` it in others). Addresses are plain integers."""

    def __init__(self) -> None:
        try:
            self._cuda = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise NoGpu(f"no driver of NVIDIA: {error}") from None
        device, self._context = c_int(), c_void_p()
        try:
            self._call("cuInit", c_uint(0))
            self._call("cuDeviceGet", byref(device), c_int(0))
            self._call("cuDevicePrimaryCtxRetain", byref(self._context), device)
            self.use()
        except OSError as error:
            raise NoGpu(str(error)) from None

    def _call(self, name: str, *arguments: object) -> None:
        code = getattr(self._cuda, name)(*arguments)
        if code:
            text = ctypes.c_char_p()
            self._cuda.cuGetErrorString(c_int(code), byref(text))
            raise OSError(f"{name}: {(text.value or b'error %d' % code).decode()}")

    def use(self) -> None:
        """Each thread must call this once before the other methods."""
        self._call("cuCtxSetCurrent", self._context)

    def pin(self, address: int, size_bytes: int) -> None:
        """Pins existing memory. Raises OSError."""
        self._call(
            "cuMemHostRegister_v2", c_void_p(address), c_size_t(size_bytes), c_uint(_PORTABLE)
        )

    def unpin(self, address: int) -> None:
        self._call("cuMemHostUnregister", c_void_p(address))

    def alloc_pinned(self, size_bytes: int) -> int:
        """Allocates CUDA's own pinned memory, for comparison."""
        address = c_void_p()
        self._call("cuMemHostAlloc", byref(address), c_size_t(size_bytes), c_uint(_PORTABLE))
        return address.value or 0

    def free_pinned(self, address: int) -> None:
        self._call("cuMemFreeHost", c_void_p(address))

    def alloc(self, size_bytes: int) -> int:
        """Allocates memory on the GPU."""
        address = c_uint64()
        self._call("cuMemAlloc_v2", byref(address), c_size_t(size_bytes))
        return address.value

    def free(self, address: int) -> None:
        self._call("cuMemFree_v2", c_uint64(address))

    def stream(self) -> int:
        made = c_void_p()
        self._call("cuStreamCreate", byref(made), c_uint(_OUT_OF_THE_WAY))
        return made.value or 0

    def to_device(self, device: int, host: int, size_bytes: int, stream: int) -> None:
        """Asynchronous: complete after `wait`."""
        self._call(
            "cuMemcpyHtoDAsync_v2",
            *(c_uint64(device), c_void_p(host), c_size_t(size_bytes), c_void_p(stream)),
        )

    def to_host(self, host: int, device: int, size_bytes: int, stream: int) -> None:
        """Asynchronous: complete after `wait`."""
        self._call(
            "cuMemcpyDtoHAsync_v2",
            *(c_void_p(host), c_uint64(device), c_size_t(size_bytes), c_void_p(stream)),
        )

    def wait(self, stream: int) -> None:
        self._call("cuStreamSynchronize", c_void_p(stream))

    def gb_per_s(self, host: int, device: int, size_bytes: int, *, to_device: bool) -> float:
        """The best speed of seven copies."""
        stream = self.stream()
        best_s = float("inf")
        for _ in range(7):
            began = time.monotonic()
            if to_device:
                self.to_device(device, host, size_bytes, stream)
            else:
                self.to_host(host, device, size_bytes, stream)
            self.wait(stream)
            best_s = min(best_s, time.monotonic() - began)
        return size_bytes / 1e9 / best_s
