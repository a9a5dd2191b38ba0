"""Adapter for the side-by-side benchmark: Mooncake Store 0.3.14. Its wheel is for CUDA 13 only.

    python3 -m venv $PEERS_VENVS/mooncake-cuda
    $PEERS_VENVS/mooncake-cuda/bin/pip install numpy mooncake-transfer-engine-cuda13==0.3.14
    BENCH_ADAPTERS=<this folder> run.py --systems mooncake_cuda/tcp

Its libraries need a driver. This adapter builds a `libcuda.so.1` that finds no device, with gcc and
nm.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

from .mooncake import Mooncake


class MooncakeCuda(Mooncake):
    venv = "mooncake-cuda"

    @classmethod
    def env(cls, opts: Any) -> dict[str, str]:
        folder = _venv() / "no-device"
        if not (folder / "libcuda.so.1").exists():
            _build(folder)
        return {**super().env(opts), "LD_LIBRARY_PATH": str(folder)}


def _venv() -> Path:
    return Path(os.environ["PEERS_VENVS"]).resolve() / MooncakeCuda.venv


def _build(folder: Path) -> None:
    libraries = map(str, _venv().glob("lib/python3*/site-packages/mooncake/*.so"))
    said = subprocess.run(
        ["nm", "-D", "--undefined-only", *libraries], stdout=subprocess.PIPE, text=True, check=True
    ).stdout
    names = sorted(set(re.findall(r"\bcu[A-Z]\w*", said)))
    folder.mkdir(exist_ok=True)
    source = "".join(f"int {name}(void) {{ return 100; }}\n" for name in names)
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(folder / "libcuda.so.1")],
        input=source.encode(),
        check=True,
    )


ADAPTER = MooncakeCuda
