"""The Pythons that packages are installed for, and the wheels of `make dist` that fit them."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

from peercached import __version__

ROOT = Path(__file__).parents[2]
STABLE_ABI_FROM = (3, 12)

Version = tuple[int, int]


def pythons() -> list[str]:
    """Those of the variable PYTHONS (`make test-install PYTHONS=...`), or this one."""
    return os.environ.get("PYTHONS", "").split() or [sys.executable]


def version_of(python: str) -> Version:
    script = "import sys; print(*sys.version_info[:2])"
    done = subprocess.run([python, "-c", script], capture_output=True, text=True, check=True)
    major, minor = done.stdout.split()
    return int(major), int(minor)


def wheel_for(
    version: Version, machine: str = platform.machine(), name: str = "peercached"
) -> Path:
    """The newest wheel for that Python on a machine of that architecture: of the daemon, or of
    `peercache_client`. FileNotFoundError with a remedy if there is none."""
    tag = "cp312-abi3" if version >= STABLE_ABI_FROM else "cp{0}{1}-cp{0}{1}".format(*version)
    found = list((ROOT / "dist").glob(f"{name}-{__version__}-{tag}-*_{machine}.whl"))
    if not found:
        raise FileNotFoundError(
            f"dist/ has no wheel {name} {tag} of this version for {machine}: run `make dist-all`"
        )
    return max(found, key=lambda path: path.stat().st_mtime)
