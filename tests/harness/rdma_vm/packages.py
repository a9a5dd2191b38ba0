"""Debian packages: installs some on this machine, and only unpacks others."""

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from harness.rdma_vm import VmError, say


def require(packages: Mapping[str, str]) -> None:
    """`packages`: a command or the path of a file -> the package that has it.

    Installs missing packages if we are root and have apt-get. Otherwise raises a VmError that
    names them, as tools/bootstrap does.
    """
    missing = sorted({package for thing, package in packages.items() if not _is_here(thing)})
    if not missing:
        return
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise VmError(f"these packages are missing: sudo apt-get install {' '.join(missing)}")
    say(f"installing {' '.join(missing)}")
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for words in (["update"], ["install", "-y", "--no-install-recommends", *missing]):
        done = subprocess.run(
            ["apt-get", "-q", *words], env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise VmError(f"apt-get {' '.join(words)} failed:\n{done.stdout}{done.stderr}")


def _is_here(thing: str) -> bool:
    return Path(thing).exists() if "/" in thing else shutil.which(thing) is not None


def newest(metapackage: str) -> str:
    """The current package of a metapackage, e.g. linux-source-6.1 for linux-source."""
    done = subprocess.run(
        ["apt-cache", "depends", "--important", metapackage],
        capture_output=True,
        text=True,
        check=False,
    )
    for line in done.stdout.splitlines():
        relation, _, package = line.strip().partition(": ")
        if relation == "Depends":
            return package
    raise VmError(f"apt-cache knows no package {metapackage}; apt-get update may help")


def unpack(packages: Sequence[str], root: Path) -> None:
    """Downloads packages and unpacks them into `root`, without installing them."""
    say(f"fetching {' '.join(packages)} (once)")
    root.mkdir(exist_ok=True)
    downloads = root.parent / "downloads"
    downloads.mkdir()
    done = subprocess.run(
        # Download as root, because apt's own user may not write here.
        ["apt-get", "-q", "-o", "APT::Sandbox::User=root", "download", *packages],
        cwd=downloads,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise VmError(f"apt-get download failed; apt-get update may help:\n{done.stderr}")
    for archive in downloads.glob("*.deb"):
        subprocess.run(["dpkg-deb", "-x", archive, root], check=True)
    shutil.rmtree(downloads)
