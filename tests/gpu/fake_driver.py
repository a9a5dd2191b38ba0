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
import tempfile
from pathlib import Path
from typing import Final

NAME: Final = "libcuda.so.1"
_SOURCE: Final = Path(__file__).with_name("fake_cuda.c")


@functools.cache
def environment() -> dict[str, str]:
    """What processes that load the driver need in their environment. OSError if there is neither
    NVIDIA's driver nor a compiler."""
    try:
        ctypes.CDLL(NAME)
        return {}
    except OSError:
        folder = _build()
        ctypes.CDLL(str(folder / NAME))
        return {"LD_LIBRARY_PATH": str(folder)}


def _build() -> Path:
    compiler = shutil.which("cc") or shutil.which("clang")
    if compiler is None:
        raise OSError("no driver of NVIDIA, and no C compiler for the fake one")
    folder = Path(tempfile.gettempdir()) / f"peercache-fake-cuda-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    made = folder / NAME
    if not made.exists() or made.stat().st_mtime < _SOURCE.stat().st_mtime:
        new = folder / f"{NAME}.{os.getpid()}"  # several test runs at once
        command = [compiler, "-std=gnu11", "-O2", "-shared", "-fPIC", "-pthread"]
        subprocess.run([*command, f"-Wl,-soname,{NAME}", "-o", new, _SOURCE], check=True)
        new.replace(made)
    return folder
