"""The driver of the tests: NVIDIA's, or fake_cuda.c where there is none.

A daemon or a worker finds the fake through LD_LIBRARY_PATH. In this process it is loaded by its
path, and later calls find it by the name of NVIDIA's library.
"""

from __future__ import annotations

import ctypes
import functools
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Final

from harness import nursery

from peercache_bench.daemons import Process

NAME: Final = "libcuda.so.1"
_SOURCE: Final = Path(__file__).with_name("fake_cuda.c")
_BUILD: Final = _SOURCE.parents[2] / "build/fake-cuda"


@functools.cache
def environment() -> dict[str, str]:
    """Variables for other processes that load the driver. OSError: there is neither NVIDIA's driver
    nor a compiler."""
    try:
        ctypes.CDLL(NAME)
        return {}
    except OSError:
        if "PEERCACHED_REAL_GPU" in os.environ:
            raise
        folder = _build()
        ctypes.CDLL(str(folder / NAME))
        return {"LD_LIBRARY_PATH": str(folder)}


def spawn(command: Sequence[str], log: IO[bytes], variables: Mapping[str, str]) -> Process:
    """Starts a daemon that finds the driver."""
    return nursery.spawn(command, log, {**variables, **environment()})


def _build() -> Path:
    compiler = shutil.which("cc") or shutil.which("clang")
    if compiler is None:
        raise OSError("no driver of NVIDIA, and no C compiler for the fake one")
    _BUILD.mkdir(parents=True, exist_ok=True)
    made = _BUILD / NAME
    if not made.exists() or made.stat().st_mtime < _SOURCE.stat().st_mtime:
        new = _BUILD / f"{NAME}.{os.getpid()}"  # several test runs at once
        command = [compiler, "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
        subprocess.run(
            [*command, "-pthread", f"-Wl,-soname,{NAME}", "-o", new, _SOURCE], check=True
        )
        new.replace(made)
    return _BUILD
