"""The few calls of CUDA's driver that the tests need, through ctypes, so that no package is needed.

`cudaHostRegister`, which SGLang calls on its host pools, is `cuMemHostRegister` underneath, and
`cudaMemcpy` is `cuMemcpyHtoD` or `cuMemcpyDtoH`.
"""

from __future__ import annotations

import ctypes
import os
import time
from ctypes import byref, c_int, c_size_t, c_uint, c_uint64, c_void_p
from typing import Any, Final

from peercache_client import cuda

CHUNK_BYTES: Final = 2 << 20  # of memory that is mapped in chunks; a multiple of the granularity
_PORTABLE: Final = 1  # CU_MEMHOSTREGISTER_PORTABLE and CU_MEMHOSTALLOC_PORTABLE
_OUT_OF_THE_WAY: Final = 1  # CU_STREAM_NON_BLOCKING

# Writes to the address in its parameter. The driver compiles it.
_STORE: Final = b"""
.version 6.4
.target sm_75
.address_size 64
.visible .entry store(.param .u64 at) {
    .reg .b64 %a;
    ld.param.u64 %a, [at];
    st.u64 [%a], %a;
    ret;
}
"""


class NoGpu(Exception):
    """No GPU can be used; the text says why."""


class _Location(ctypes.Structure):  # CUmemLocation
    _fields_ = (("type", c_int), ("id", c_int))


class _Properties(ctypes.Structure):  # CUmemAllocationProp
    _fields_ = (
        ("type", c_int),
        ("handle_types", c_int),
        ("location", _Location),
        ("security", c_void_p),
        ("flags", ctypes.c_uint8 * 8),
    )


class _Access(ctypes.Structure):  # CUmemAccessDesc
    _fields_ = (("location", _Location), ("flags", c_int))


class Gpu:
    """The first GPU, for one thread (`use` it in others). Addresses are plain integers."""

    def __init__(self) -> None:
        try:
            self._cuda = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise NoGpu(f"no driver of NVIDIA: {error}") from None
        self._device, self._context = c_int(), c_void_p()
        try:
            self._call("cuInit", c_uint(0))
            self._call("cuDeviceGet", byref(self._device), c_int(0))
            self._call("cuDevicePrimaryCtxRetain", byref(self._context), self._device)
            self.use()
        except OSError as error:
            raise NoGpu(str(error)) from None
        self._stream = self.stream()

    def _call(self, name: str, *arguments: object) -> None:
        code = getattr(self._cuda, name)(*arguments)
        if code:
            text = ctypes.c_char_p()
            self._cuda.cuGetErrorString(c_int(code), byref(text))
            raise OSError(f"{name}: {(text.value or b'error %d' % code).decode()}")

    def use(self) -> None:
        """Each thread must call this once before the other methods."""
        self._call("cuCtxSetCurrent", self._context)

    @property
    def name(self) -> str:
        text = ctypes.create_string_buffer(128)
        self._call("cuDeviceGetName", text, c_int(128), self._device)
        return text.value.decode()

    # --- memory of the host ----------------------------------------------------------------

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

    # --- memory of the GPU -----------------------------------------------------------------

    def alloc(self, size_bytes: int) -> int:
        """Allocates memory on the GPU, as cudaMalloc does."""
        address = c_uint64()
        self._call("cuMemAlloc_v2", byref(address), c_size_t(size_bytes))
        return address.value

    def free(self, address: int) -> None:
        self._call("cuMemFree_v2", c_uint64(address))

    def alloc_chunks(self, chunks: int) -> int:
        """Memory in one range of addresses, with an allocation for each CHUNK_BYTES, as PyTorch's
        expandable segments have it."""
        address = c_uint64()
        size = c_size_t(chunks * CHUNK_BYTES)
        here = _Location(1, self._device.value)
        wanted = _Properties(1, 1, here)  # pinned, for a POSIX descriptor
        self._call(
            "cuMemAddressReserve", byref(address), size, c_size_t(0), c_uint64(0), c_uint64(0)
        )
        for number in range(chunks):
            handle, chunk = c_uint64(), c_size_t(CHUNK_BYTES)
            at = c_uint64(address.value + number * CHUNK_BYTES)
            self._call("cuMemCreate", byref(handle), chunk, byref(wanted), c_uint64(0))
            self._call("cuMemMap", at, chunk, c_size_t(0), handle, c_uint64(0))
            self._call("cuMemRelease", handle)
        self._call("cuMemSetAccess", address, size, byref(_Access(here, 3)), c_size_t(1))
        return address.value

    def free_chunks(self, address: int, chunks: int) -> None:
        for number in range(chunks):
            at = c_uint64(address + number * CHUNK_BYTES)
            self._call("cuMemUnmap", at, c_size_t(CHUNK_BYTES))
        self._call("cuMemAddressFree", c_uint64(address), c_size_t(chunks * CHUNK_BYTES))

    # --- copies ----------------------------------------------------------------------------

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

    def write(self, device: int, content: bytes | bytearray) -> None:
        """Returns when the bytes are there."""
        host = (ctypes.c_char * len(content)).from_buffer_copy(content)
        self.to_device(device, ctypes.addressof(host), len(content), self._stream)
        self.wait(self._stream)

    def read(self, device: int, size_bytes: int) -> bytes:
        host = (ctypes.c_char * size_bytes)()
        self.to_host(ctypes.addressof(host), device, size_bytes, self._stream)
        self.wait(self._stream)
        return bytes(host)

    def copies_s(
        self, host: int, device: int, size_bytes: int, count: int, *, to_device: bool
    ) -> float:
        """Seconds of `count` calls of cudaMemcpy, each for the next bytes. ctypes takes half a
        microsecond of each."""
        if to_device:
            call: Any = self._cuda.cuMemcpyHtoD_v2
            call.argtypes, to, source = (c_uint64, c_void_p, c_size_t), device, host
        else:
            call = self._cuda.cuMemcpyDtoH_v2
            call.argtypes, to, source = (c_void_p, c_uint64, c_size_t), host, device
        began = time.perf_counter()
        for at in range(0, count * size_bytes, size_bytes):
            code = call(to + at, source + at, size_bytes)
        took_s = time.perf_counter() - began
        assert code == 0
        return took_s

    def gb_per_s(self, host: int, device: int, size_bytes: int, *, to_device: bool) -> float:
        """The best speed of seven copies."""
        best_s = min(
            self.copies_s(host, device, size_bytes, 1, to_device=to_device) for _ in range(7)
        )
        return size_bytes / 1e9 / best_s

    def store(self, address: int) -> None:
        """A kernel writes to this address. A wrong one loses the context of this process: OSError,
        now and from every later call."""
        module, function, at = c_void_p(), c_void_p(), c_uint64(address)
        self._call("cuModuleLoadData", byref(module), ctypes.c_char_p(_STORE))
        self._call("cuModuleGetFunction", byref(function), module, ctypes.c_char_p(b"store"))
        one, none = c_uint(1), c_void_p()
        self._call(
            "cuLaunchKernel", function, one, one, one, one, one, one, c_uint(0),
            c_void_p(self._stream), (c_void_p * 1)(ctypes.addressof(at)), none,
        )  # fmt: skip
        self.wait(self._stream)


class GpuMemory:
    """An allocation on a GPU that is exported for the daemon."""

    def __init__(self, gpu: Gpu, size: int) -> None:
        self._gpu = gpu
        self.size = size
        # The driver gives smaller ones parts of one block.
        self.address = gpu.alloc(-(-size // CHUNK_BYTES) * CHUNK_BYTES)
        self.memory, self.offset, _ = cuda.export(self.address, size)

    def read(self) -> bytes:
        return self._gpu.read(self.address, self.size)

    def write(self, content: bytes | bytearray) -> None:
        self._gpu.write(self.address, content)

    def close(self) -> None:
        self._gpu.free(self.address)


class ChunkMemory:
    """One of several chunks in one range of addresses, exported by its descriptor."""

    def __init__(self, gpu: Gpu, size: int) -> None:
        assert size <= CHUNK_BYTES // 2
        self._gpu = gpu
        self.size = size
        self._range = gpu.alloc_chunks(3)
        self._at = self._range + CHUNK_BYTES + CHUNK_BYTES // 2  # in the middle of the second one
        self.memory, self.offset, _ = cuda.export(self._at, size)

    def read(self) -> bytes:
        return self._gpu.read(self._at, self.size)

    def write(self, content: bytes | bytearray) -> None:
        self._gpu.write(self._at, content)

    def close(self) -> None:
        assert self.memory.fd is not None
        os.close(self.memory.fd)
        self._gpu.free_chunks(self._range, 3)
