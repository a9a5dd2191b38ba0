"""vLLM with LMCache's connector on a CPU. lmcache is in an environment of its own."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
LMCACHE_PYTHON = ROOT / ".venv-lmcache/bin/python"


def connector_config(port: int) -> dict[str, Any]:
    """`port`: of LMCache's server."""
    return {
        "kv_connector": "LMCacheMPConnector",
        "kv_role": "kv_both",
        "kv_connector_extra_config": {
            "lmcache.mp.host": "tcp://127.0.0.1",
            "lmcache.mp.port": port,
        },
    }


def add_lmcache() -> None:
    """Makes lmcache importable, behind the packages of vLLM."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    sys.path.append(str(LMCACHE_PYTHON.parents[1] / "lib" / version / "site-packages"))
    # Without CUDA IPC: the worker copies its KV cache into LMCache's shared memory.
    os.environ["LMCACHE_MP_TRANSFER_MODE"] = "engine_driven"
    os.environ["LMCACHE_TRACK_USAGE"] = "false"
    # lmcache loads numba, and with it llvmlite. vLLM 0.32 calls vars() on all that modules contain
    # when it starts on a CPU, and llvmlite's library object has a wrong __dict__.
    importlib.import_module("numba")
    del sys.modules["llvmlite.binding.ffi"]
