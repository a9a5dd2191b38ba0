"""Looks for GPUs on this machine, without CUDA in this process."""

from __future__ import annotations

import contextlib
import grp
import os
import pwd
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from peercached.admin.status import Status
from peercached.config.private import DAEMON_GROUP
from peercached.doctor.gpu import Driver, Gpus

_PROBE = Path(__file__).with_name("cuda_probe.py")
_PROBE_S = 30.0  # without nvidia-persistenced, the driver wakes each GPU: seconds
_SYSTEMCTL_S = 5.0
_PROPERTIES = "LoadState,DevicePolicy,DeviceAllow,PrivateDevices,ProtectProc,SupplementaryGroups"


def find_gpus(key: str, status: Status | None) -> Gpus:
    """`key`: the key `gpu`. `status`: of the daemon on this host, None if none answers."""
    cards = _cards()
    if key != "cuda":
        return Gpus(cards)
    used = [gpu.name for gpu in status.gpus] if status else []
    unit = properties(_systemctl())
    return Gpus(
        cards,
        slices=len(list(Path("/proc/driver/nvidia/capabilities").glob("gpu*/mig/gi*/ci*"))),
        used=used,
        driver=None if used else ask_driver(),
        doors={} if used else _doors(unit),
        unit=unit,
        hidden_workers=sum(not worker.pid for worker in status.workers) if status else 0,
    )


def _cards() -> int:
    found = 0
    for device in Path("/sys/bus/pci/devices").glob("*"):
        with contextlib.suppress(OSError):  # it vanished meanwhile
            vendor, kind = ((device / name).read_text() for name in ("vendor", "class"))
            found += vendor.strip() == "0x10de" and kind.startswith("0x03")
    return found


def ask_driver(command: tuple[str, ...] = (sys.executable, "-I", str(_PROBE))) -> Driver:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_PROBE_S, check=False
        )
        return Driver.model_validate_json(done.stdout)
    except subprocess.TimeoutExpired:
        return Driver(fault="silence", text=f"did not answer in {_PROBE_S:g} s")
    except ValueError:
        said = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        return Driver(fault="silence", text=f"ended the process that asked it: {said}")


def _doors(unit: Mapping[str, str]) -> dict[str, bool | None]:
    numbered = sorted(str(path) for path in Path("/dev").glob("nvidia[0-9]*"))
    paths = ["/dev/nvidiactl", "/dev/nvidia-uvm", *(numbered or ["/dev/nvidia0"])]
    try:
        uid = pwd.getpwnam(DAEMON_GROUP).pw_uid
        gids = set(os.getgrouplist(DAEMON_GROUP, uid))
    except KeyError:
        uid, gids = os.geteuid(), set()
    for name in unit.get("SupplementaryGroups", "").split():
        with contextlib.suppress(KeyError):
            gids.add(int(name) if name.isdigit() else grp.getgrnam(name).gr_gid)
    return {path: may_open(Path(path), uid, gids) for path in paths}


def may_open(path: Path, uid: int, gids: set[int]) -> bool | None:
    """Whether this user may read and write; None if the file is absent."""
    try:
        found = path.stat()
    except OSError:
        return None
    if uid == os.geteuid():
        return os.access(path, os.R_OK | os.W_OK)  # a container's list of devices counts, too
    shift = 6 if found.st_uid == uid else 3 if found.st_gid in gids else 0
    return found.st_mode >> shift & 0o6 == 0o6


def _systemctl() -> str:
    try:
        return subprocess.run(
            ["systemctl", "show", f"--property={_PROPERTIES}", "peercached.service"],
            capture_output=True,
            text=True,
            timeout=_SYSTEMCTL_S,
            check=True,
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return ""  # no systemd here, such as in a container


def properties(shown: str) -> dict[str, str]:
    """Parses `systemctl show`. Empty if there is no such unit."""
    found: dict[str, str] = {}
    for name, value in re.findall(r"^(\w+)=(.*)$", shown, re.MULTILINE):
        found[name] = f"{found[name]}, {value}" if name in found else value
    return found if found.get("LoadState") == "loaded" else {}
