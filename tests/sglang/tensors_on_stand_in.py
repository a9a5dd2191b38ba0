"""SGLang's device pools in memory that plays a GPU, for daemons with `gpu = "stand-in"`."""

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from harness.gpu_stand_in import GpuStandIn

from peercache_client import _ipc
from peercache_client.cuda import Exported

_ALIGN_BYTES = 256


class TensorsOnStandIn:
    """`export` is what the linker asks instead of CUDA."""

    def __init__(self, size: int = 64 << 20) -> None:
        self.gpu = GpuStandIn(size)
        self.address = _ipc.address_of(self.gpu.bytes)
        self._used = 0

    def zeros(self, shape: Any, dtype: torch.dtype) -> Any:
        size = math.prod(shape) * dtype.itemsize
        flat = torch.frombuffer(self.gpu.bytes, dtype=torch.uint8, count=size, offset=self._used)
        self._used += -(-size // _ALIGN_BYTES) * _ALIGN_BYTES
        return flat.view(dtype).view(shape)

    def export(self, address: int, size: int) -> Exported:
        offset = address - self.address
        assert 0 <= offset <= self.gpu.size - size
        return Exported(self.gpu.memory._replace(fd=os.dup(self.gpu.fd)), offset, self.address)

    @contextmanager
    def makes_pools(self) -> Iterator[None]:
        """Large tensors of zeros are on the stand-in meanwhile."""
        usual = torch.zeros

        def zeros(*shape: Any, **options: Any) -> Any:
            made = usual(*shape, **options)
            if made.numel() < 1024:
                return made
            return self.zeros(made.shape, made.dtype)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(torch, "zeros", zeros)
            yield
