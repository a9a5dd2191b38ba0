"""NVIDIA's driver on this machine as JSON: `python3 cuda_probe.py [LIBRARY]`.

It runs in a process of its own, because a driver may hang or crash. So it imports no peercached
code. The fields are those of gpu.Driver.
"""

import ctypes
import json
import sys
from typing import Any

# The calls of native/device/cuda_driver.cc. Version 525 of the driver has all of them.
CALLS = (
    "cuInit", "cuGetErrorString", "cuDeviceGetCount", "cuDeviceGet", "cuDeviceGetUuid_v2",
    "cuDeviceGetName", "cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRelease_v2",
    "cuCtxSetCurrent", "cuIpcOpenMemHandle_v2", "cuIpcCloseMemHandle", "cuMemGetAddressRange_v2",
    "cuMemImportFromShareableHandle", "cuMemRelease", "cuMemAddressReserve", "cuMemAddressFree",
    "cuMemMap", "cuMemUnmap", "cuMemSetAccess", "cuMemHostRegister_v2", "cuMemHostUnregister",
    "cuStreamCreate", "cuStreamDestroy_v2", "cuStreamSynchronize", "cuMemcpy2DAsync_v2",
    "cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2", "cuEventCreate", "cuEventDestroy_v2",
    "cuEventRecord", "cuEventQuery",
)  # fmt: skip
_NAMED_MAX = 3


def _text(cuda: Any, call: str, code: int) -> str:
    text = ctypes.c_char_p()
    cuda.cuGetErrorString(code, ctypes.byref(text))
    return f"{call}: {(text.value or b'unknown error').decode()} ({code})"


def probe(library: str) -> dict[str, Any]:
    try:
        cuda = ctypes.CDLL(library)
    except OSError as error:
        return {"fault": "library", "text": str(error)}
    if missing := [name for name in CALLS if not hasattr(cuda, name)]:
        return {"fault": "calls", "text": ", ".join(missing[:_NAMED_MAX])}
    if code := cuda.cuInit(0):
        return {"fault": "start", "text": _text(cuda, "cuInit", code)}
    count = ctypes.c_int()
    if code := cuda.cuDeviceGetCount(ctypes.byref(count)):
        return {"fault": "start", "text": _text(cuda, "cuDeviceGetCount", code)}
    names = []
    for number in range(count.value):
        device, name = ctypes.c_int(), ctypes.create_string_buffer(128)
        code = cuda.cuDeviceGet(ctypes.byref(device), number)
        code = code or cuda.cuDeviceGetName(name, len(name), device)
        names.append(_text(cuda, "cuDeviceGetName", code) if code else name.value.decode())
    if not names:
        return {"fault": "start", "text": "it shows none"}
    return {"names": names}


if __name__ == "__main__":
    print(json.dumps(probe((*sys.argv, "libcuda.so.1")[1])))
