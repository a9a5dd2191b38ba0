"""A bare Debian with a real systemd, where the commands of the manual install the service."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.pythons import ROOT, wheel_for

from peercached import __version__

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

HERE = Path(__file__).parent
MANUAL = HERE.parents[1] / "docs" / "operations.md"
CACHE = Path.home() / ".cache" / "peercached" / "bare-bookworm.tar"
DEBIANS = (3, 11)
INSTALL_DEB = """
dpkg --install /wheels/peercached_*.deb
systemctl enable --now peercached
man -w peercachectl-status 2>/dev/null || test -e /usr/share/man/man1/peercachectl-status.1.gz
peercachectl --version
"""
PACKAGES = "python3-venv,systemd,systemd-sysv,dbus,procps"
BOOT_S = 1200
CLIENT = """
from peercache_client import Client
page = bytes(range(256)) * 256
with Client("/run/peercached/peercached.sock", namespace="n", timeout_s=10) as client:
    assert client.set(b"k", page)
    assert client.get(b"k", len(page)) == page
"""
BOOT_UNIT = """
[Unit]
After=multi-user.target
[Service]
Type=simple
ExecStart=/bin/bash /proof/proof.sh
[Install]
WantedBy=multi-user.target
"""


def reason_to_skip() -> str:
    if os.geteuid() != 0:
        return "needs root"
    for tool in ("mmdebstrap", "systemd-nspawn"):
        if not shutil.which(tool):
            return f"{tool} is not installed (apt-get install mmdebstrap systemd-container)"
    if sys.version_info[:2] != DEBIANS:
        return "this Python must be Debian 12's, 3.11: it downloads the packages"
    return ""


def run(*command: str | Path) -> None:
    subprocess.run([str(word) for word in command], check=True)


def commands_of_the_manual() -> str:
    """The first indented block after "## Install"."""
    text = MANUAL.read_text()
    section = text[text.index("\n## Install\n") :]
    block = re.search(r"(?:^    .+\n)+", section, flags=re.MULTILINE)
    assert block is not None
    return re.sub(r"^    ", "", block[0], flags=re.MULTILINE)


@pytest.fixture(params=["wheel", "deb"])
def package(request: pytest.FixtureRequest) -> Path:
    if reason := reason_to_skip():
        pytest.skip(reason)
    if request.param == "deb":
        found = sorted(ROOT.glob(f"dist/peercached_{__version__}_*.deb"))
        if not found:
            pytest.skip("there is no Debian package of this version in dist/: run `make deb`")
        return found[0]
    try:
        return wheel_for(DEBIANS)
    except FileNotFoundError as error:
        pytest.skip(str(error))


@pytest.fixture
def root(package: Path) -> Iterator[Path]:
    is_deb = package.suffix == ".deb"
    if not CACHE.exists():
        CACHE.parent.mkdir(parents=True, exist_ok=True)
        made = CACHE.with_suffix(".new.tar")
        run("mmdebstrap", "--variant=minbase", f"--include={PACKAGES}", "bookworm", made)
        made.rename(CACHE)
    with tempfile.TemporaryDirectory(prefix="pc-root-") as name:
        folder = Path(name)
        run("tar", "-C", folder, "--numeric-owner", "-xf", CACHE)
        wheels = folder / "wheels"
        wheels.mkdir()
        if is_deb:
            shutil.copy(package, wheels)
        else:
            run(
                sys.executable, "-m", "pip", "download", "-q", "--only-binary", ":all:",
                "--dest", wheels, package,
            )  # fmt: skip
        proof = folder / "proof"
        proof.mkdir()
        shutil.copy(HERE / "proof.sh", proof)
        (proof / "install.sh").write_text(INSTALL_DEB if is_deb else commands_of_the_manual())
        (proof / "client.py").write_text(CLIENT)
        (proof / "client.py").chmod(0o644)
        (folder / "etc/systemd/system/proof.service").write_text(BOOT_UNIT)
        wants = folder / "etc/systemd/system/multi-user.target.wants"
        wants.mkdir(exist_ok=True)
        (wants / "proof.service").symlink_to("/etc/systemd/system/proof.service")
        yield folder


def test_the_service_as_the_manual_has_it(root: Path) -> None:
    boot = subprocess.run(
        [
            "systemd-nspawn", "--quiet", "--directory", root, "--boot", "--register=no",
            "--keep-unit", "--private-network", "--console=pipe",
        ],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=BOOT_S, check=False,
    )  # fmt: skip
    proof = root / "proof"
    if not (proof / "log").exists():
        pytest.skip(f"this machine boots no container: {(boot.stdout + boot.stderr)[-500:]}")
    log = (proof / "log").read_text(errors="replace")
    assert (proof / "done").exists(), log
    claims = (proof / "claims").read_text().splitlines()
    print("\n".join(claims), (proof / "exposure").read_text(), sep="\n")
    failed = [claim for claim in claims if not claim.startswith("ok ")]
    journal = (proof / "journal").read_text(errors="replace")
    assert not failed, f"{failed}\n{log}\n{journal}"
    assert len(claims) >= 30
