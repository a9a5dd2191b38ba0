"""Makes a process's control plane hang while its native threads run."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator

import pytest

_SEIZE, _INTERRUPT, _DETACH = 0x4206, 0x4207, 17
_WALL = 0x40000000

_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
_libc.ptrace.restype = ctypes.c_long


def _ptrace(request: int, thread: int) -> None:
    if _libc.ptrace(request, thread, None, None) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), "ptrace")


@contextlib.contextmanager
def hung_main_thread(pid: int) -> Iterator[None]:
    """Stops only the first thread of that process, which runs the event loop."""
    try:
        _ptrace(_SEIZE, pid)
    except PermissionError:
        pytest.skip("this machine lets no process trace another")
    try:
        _ptrace(_INTERRUPT, pid)
        os.waitpid(pid, _WALL)
        yield
    finally:
        _ptrace(_DETACH, pid)
