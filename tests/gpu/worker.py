"""A worker process on the GPU, for tests that end it or harm it.

Each role prints a line when it has stored its first pages, and ends with its standard input.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Final

from harness.layered_pages import layered_pages
from harness.pages import keys_of

from gpu import driver
from gpu.cuda import Gpu, GpuMemory
from peercache_client import Client, cuda

PAGES: Final = 64
_TESTS: Final = Path(__file__).parents[1]


class Worker:
    """The process, as a test sees it."""

    def __init__(self, socket_path: Path, role: str) -> None:
        path = f"{_TESTS}:{os.environ.get('PYTHONPATH', '')}"
        environment = {**os.environ, **driver.environment(), "PYTHONPATH": path}
        if role == "segments":
            environment["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
        self._process = subprocess.Popen(
            [sys.executable, "-m", "gpu.worker", str(socket_path), role],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def line(self) -> str:
        """The next line that it prints; empty if it has ended."""
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()


def set_for_ever(client: Client) -> None:
    """Pages "NUMBER/...", for each number in turn."""
    with layered_pages(client, PAGES, partial(GpuMemory, Gpu())) as pages:
        for number in count():
            pages.store(client, keys_of(str(number), PAGES))
            print(number, flush=True)


def lose_context(client: Client) -> None:
    """A kernel writes to a wrong address. Then sets once more."""
    gpu = Gpu()
    with layered_pages(client, PAGES, partial(GpuMemory, gpu)) as pages:
        assert all(pages.store(client, keys_of("lost", PAGES)))
        print("stored", flush=True)
        try:
            gpu.store(1 << 40)
        except OSError as error:
            print(error, flush=True)
        again = client.batch_set_device(keys_of("again", PAGES), pages.layout, range(PAGES))
        print(*{status.name for status in again}, flush=True)
        sys.stdin.read()


class Tensor:
    """A tensor of PyTorch."""

    def __init__(self, size: int) -> None:
        import torch

        self.size = size
        self._tensor: Any = torch.zeros(size, dtype=torch.uint8, device="cuda")
        self.memory, self.offset, _ = cuda.export(self._tensor.data_ptr(), size)

    def read(self) -> bytes:
        return bytes(self._tensor.cpu().numpy().tobytes())

    def write(self, content: bytes | bytearray) -> None:
        import torch

        self._tensor.copy_(torch.frombuffer(bytearray(content), dtype=torch.uint8))
        torch.cuda.synchronize()

    def close(self) -> None:
        if self.memory.fd is not None:
            os.close(self.memory.fd)


def use_segments(client: Client) -> None:
    """Prints the kind of the memory of a small tensor, and the error of a large one."""
    try:
        import torch
    except ImportError:
        return print("no PyTorch")
    if not torch.cuda.is_available():
        return print("PyTorch finds no GPU")
    with layered_pages(client, PAGES, Tensor) as pages:
        keys = keys_of("segments", PAGES)
        assert all(pages.store(client, keys))
        pages.check(client, keys)
        print(pages.gpu.memory.kind.name)
    try:
        Tensor(64 << 20)
        print("one allocation")
    except OSError as error:
        print(error)


ROLES: Final[dict[str, Callable[[Client], None]]] = {
    "set": set_for_ever,
    "lose": lose_context,
    "segments": use_segments,
}

if __name__ == "__main__":
    with Client(sys.argv[1], "gpu", timeout_s=20) as own:
        ROLES[sys.argv[2]](own)
