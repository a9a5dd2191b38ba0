"""Pythons of another architecture that run here under QEMU's user mode: Debian's packages, unpacked
into build/, with a wheel of `make dist` and all that it needs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from harness.pythons import ROOT, Version, wheel_for

EMULATOR = "qemu-aarch64-static"
MACHINE = "aarch64"

# A release of Debian for each Python that one has. Nobody packages the others for aarch64.
RELEASES: dict[Version, str] = {(3, 11): "bookworm", (3, 13): "trixie"}
LIBRARIES = [
    "libc6", "libgcc-s1", "libstdc++6", "libexpat1", "zlib1g", "libffi8", "libbz2-1.0", "liblzma5",
    "libsqlite3-0", "libuuid1", "libcrypt1",
]  # fmt: skip
OPENSSL = {"bookworm": ["libssl3"], "trixie": ["libssl3t64", "libzstd1"]}


def available() -> bool:
    return shutil.which(EMULATOR) is not None


@dataclass
class EmulatedPython:
    """`command(...)` with `variables` runs this Python. Its modules see the wheel's packages."""

    root: Path
    packages: Path
    version: Version

    def command(self, *words: str | Path) -> list[str]:
        python = self.root / "usr/bin" / "python{}.{}".format(*self.version)
        return [EMULATOR, "-L", str(self.root), str(python), "-s", *map(str, words)]

    @property
    def variables(self) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"], "HOME": str(self.packages),
            "PYTHONPATH": str(self.packages), "PYTHONDONTWRITEBYTECODE": "1",
        }  # fmt: skip

    def run(self, *words: str | Path) -> str:
        done = subprocess.run(
            self.command(*words), env=self.variables, cwd="/", capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
        return done.stdout


def make(version: Version, packages: Path) -> EmulatedPython:
    """Installs the wheel for this Python into the folder `packages`. FileNotFoundError if dist/
    has no such wheel."""
    wheel = wheel_for(version, MACHINE)
    release = RELEASES[version]
    name = "{}.{}".format(*version)
    root = ROOT / "build" / "emulated" / f"{MACHINE}-python{name}"
    python = [f"python{name}-minimal", f"libpython{name}-minimal", f"libpython{name}-stdlib"]
    subprocess.run(
        ["tools/debs", root, release, "arm64", *python, *LIBRARIES, *OPENSSL[release]],
        cwd=ROOT, check=True,
    )  # fmt: skip
    platforms = [
        f"{tag}_{MACHINE}" for tag in ("manylinux_2_28", "manylinux_2_17", "manylinux2014")
    ]
    subprocess.run(
        [
            sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check",
            "--only-binary=:all:", f"--python-version={name}", "--implementation=cp",
            *(f"--platform={platform}" for platform in platforms),
            "--target", packages, wheel,
        ],
        check=True,
    )  # fmt: skip
    return EmulatedPython(root, packages, version)
