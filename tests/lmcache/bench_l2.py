"""LMCache's own `lmcache bench l2`, with L1 in shared memory. A server that is started as
docs/lmcache.md says has it there, too.

    .venv-lmcache/bin/python tests/lmcache/bench_l2.py ARGUMENT...    those of `lmcache bench l2`
"""

import mmap
import os
import runpy
import sys
from typing import Any

import torch
from lmcache.cli.commands.bench.l2_adapter_bench import data


def shared_tensor(num_bytes: int, *_: Any, **__: Any) -> Any:
    file = os.memfd_create("lmcache-bench")
    os.ftruncate(file, num_bytes)
    return torch.frombuffer(mmap.mmap(file, num_bytes), dtype=torch.uint8)


if __name__ == "__main__":
    data.make_aligned_tensor = shared_tensor
    sys.argv[1:1] = ["bench", "l2"]
    runpy.run_module("lmcache.cli.main", run_name="__main__")
