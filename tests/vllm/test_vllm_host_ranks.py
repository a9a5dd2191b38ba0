"""An engine is refused if not all its ranks write into the memory that the tier has."""

import mmap
import os
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import replace
from types import SimpleNamespace

import pytest
from offload_node import PARALLEL

from peercache_client import _ipc
from peercache_client.vllm.ranks import check_ranks

SIZE = 1 << 20
MAPS = """
import mmap, os, sys
memory = mmap.mmap(os.open(sys.argv[1], os.O_RDWR), int(sys.argv[2]))
print("mapped", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize(
    ("sizes", "refused"),
    [
        ([SIZE, SIZE], ""),
        ([SIZE], "1 of 2 ranks share the host memory .* on other hosts"),
        ([SIZE, SIZE // 2], "their layers differ"),
    ],
)
def test_all_ranks_must_have_the_memory(sizes: list[int], refused: str) -> None:
    config = SimpleNamespace(parallel=replace(PARALLEL, world_size=2, tp_size=2))
    with ExitStack() as stack:
        fd = os.memfd_create("host memory")
        stack.callback(os.close, fd)
        os.ftruncate(fd, SIZE)
        memory = stack.enter_context(mmap.mmap(fd, SIZE))
        path = f"/proc/{os.getpid()}/fd/{fd}"
        for size in sizes:
            worker = stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", MAPS, path, str(size)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                )
            )
            stack.callback(worker.kill)
            assert worker.stdout is not None
            assert worker.stdout.readline() == b"mapped\n"
        address = _ipc.address_of(memoryview(memory))
        if not refused:
            check_ranks(config, address)
            return
        with pytest.raises(ValueError, match=refused):
            check_ranks(config, address)
