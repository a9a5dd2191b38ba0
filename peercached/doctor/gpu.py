"""GPUs: the driver, device files, MIG slices, and whether the daemon sees its workers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from pydantic import BaseModel

from peercached.doctor.finding import Finding

DROP_IN = "/opt/peercached/share/peercached/deploy/systemd/peercached-gpu.conf"
_TOOLKIT = (
    "the NVIDIA Container Toolkit with NVIDIA_VISIBLE_DEVICES=all and "
    "NVIDIA_DRIVER_CAPABILITIES=compute,utility"
)
# Fault of the driver -> its sentence and remedy.
_FAULTS = {
    "library": (
        "NVIDIA's driver cannot be loaded: {}",
        f"Install the driver (nvidia-smi then works); for a container: {_TOOLKIT}.",
    ),
    "calls": (
        "NVIDIA's driver is too old: it has no {}",
        "Update the driver of the host to version 525 or later.",
    ),
    "start": (
        "NVIDIA's driver lets this process use no GPU: {}",
        "Run nvidia-smi, and look at the check of device files. Error 802: start "
        "nvidia-fabricmanager. Error 803: module and library differ, so reboot.",
    ),
    "silence": (
        "NVIDIA's driver {}",
        "Look for errors of a GPU in dmesg (Xid), then reset it (nvidia-smi -r) or reboot.",
    ),
}


class Driver(BaseModel):
    """The output of cuda_probe.py. `fault`: a key of _FAULTS; empty if the driver works."""

    names: list[str] = []  # of the GPUs
    fault: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True)
class Gpus:
    """The facts about the GPUs of this host."""

    cards: int = 0  # of NVIDIA on the PCI bus
    slices: int = 0  # of MIG
    used: list[str] = field(default_factory=list)  # names of those that the running daemon has
    driver: Driver | None = None  # None: not asked, because the daemon works
    # Device file -> whether the daemon's user may open it; None: it is absent.
    doors: Mapping[str, bool | None] = field(default_factory=dict)
    unit: Mapping[str, str] = field(default_factory=dict)  # the systemd unit; empty: none
    hidden_workers: int = 0  # processes that the daemon cannot see


def check_gpus(key: str, gpus: Gpus) -> list[Finding]:
    """`key`: the key `gpu`."""
    if key == "stand-in":
        text = 'gpu is "stand-in", which plays GPUs for tests: no page reaches a real one'
        return [Finding("GPU", "warning", text, 'Set gpu to "cuda" or "off".')]
    if key == "off":
        return [_unused(gpus.cards)]
    shown = gpus.used or (gpus.driver.names if gpus.driver else [])
    if not shown and not gpus.cards:
        text = 'gpu is "cuda", but the PCI bus of this host has no GPU of NVIDIA'
        return [Finding("GPU", "failure", text, 'Set gpu to "off" here, or look at lspci.')]
    findings = [_driver(gpus.driver, shown)]
    findings += _doors(gpus.doors)
    findings += _unit(gpus.unit)
    if gpus.slices:
        findings.append(_slices(gpus.slices))
    elif 0 < len(shown) < gpus.cards:
        findings.append(_some_hidden(gpus.cards - len(shown), gpus.cards))
    elif len(gpus.used) > gpus.cards:
        findings.append(_some_gone(len(gpus.used) - gpus.cards))
    findings += _hidden(gpus.hidden_workers)
    return findings


def _unused(cards: int) -> Finding:
    if not cards:
        return Finding("GPU", "skipped", "gpu is off")
    return Finding(
        "GPU",
        "ok",
        f"{cards} GPUs of NVIDIA are here; pages go through memory of the host, because gpu is off",
    )


def _driver(driver: Driver | None, shown: Collection[str]) -> Finding:
    if driver and driver.fault:
        text, remedy = _FAULTS[driver.fault]
        return Finding("GPU driver", "failure", text.format(driver.text), remedy)
    names = ", ".join(f"{number} x {name}" for name, number in Counter(shown).items())
    who = "the driver shows" if driver else "the daemon has"
    return Finding("GPU driver", "ok", f"{who} {names}")


def _doors(doors: Mapping[str, bool | None]) -> list[Finding]:
    check = "GPU files"
    findings = []
    if absent := [path for path, may in doors.items() if may is None]:
        findings.append(
            Finding(
                check,
                "failure",
                f"{', '.join(absent)}: no such file",
                "On the host, as root, after each boot: nvidia-modprobe -u -c 0. Then restart the "
                f"daemon. For a container: {_TOOLKIT}.",
            )
        )
    if shut := [path for path, may in doors.items() if may is False]:
        findings.append(
            Finding(
                check,
                "failure",
                f"the daemon's user may not open {', '.join(shut)}",
                "Give the daemon the group of these files (ls -l /dev/nvidia*): "
                "SupplementaryGroups= in the unit's drop-in, supplementalGroups in Kubernetes. "
                f"For a container: {_TOOLKIT}.",
            )
        )
    if doors and not findings:
        findings.append(Finding(check, "ok", f"the daemon's user may open {', '.join(doors)}"))
    return findings


def _unit(unit: Mapping[str, str]) -> list[Finding]:
    """`unit`: properties of `systemctl show`."""
    if not unit:
        return []
    allowed = unit.get("DeviceAllow", "")
    closed = unit.get("DevicePolicy") in ("closed", "strict") or bool(allowed)
    hidden = []
    if unit.get("PrivateDevices") == "yes" or (closed and "nvidia" not in allowed):
        hidden.append("the GPUs")
    if unit.get("ProtectProc", "default") != "default":
        hidden.append("the workers' processes")
    if not hidden:
        return [Finding("GPU unit", "ok", "the systemd unit hides neither GPUs nor workers")]
    return [
        Finding(
            "GPU unit",
            "failure" if "the GPUs" in hidden else "warning",
            f"the systemd unit hides {' and '.join(hidden)} from the daemon",
            f"install -D -m 0644 {DROP_IN} /etc/systemd/system/peercached.service.d/gpu.conf; "
            "systemctl daemon-reload; systemctl restart peercached.",
        )
    ]


def _slices(slices: int) -> Finding:
    return Finding(
        "GPU slices",
        "warning",
        f"the GPUs here have {slices} MIG slices, and CUDA shows a process only one: workers on "
        "another slice than the daemon's get bad_region",
        "Give the daemon and its workers the same slice (CUDA_VISIBLE_DEVICES=MIG-UUID, for a "
        "container NVIDIA_VISIBLE_DEVICES), or switch MIG off (nvidia-smi -mig 0).",
    )


def _some_hidden(hidden: int, cards: int) -> Finding:
    return Finding(
        "GPU count",
        "warning",
        f"{hidden} of {cards} GPUs are hidden: workers on them get bad_region",
        "Unset CUDA_VISIBLE_DEVICES for the daemon; for a container: NVIDIA_VISIBLE_DEVICES=all. "
        "Then nvidia-smi must list all GPUs; dmesg says why one is missing (Xid).",
    )


def _some_gone(gone: int) -> Finding:
    return Finding(
        "GPU count",
        "warning",
        f"{gone} of the daemon's GPUs are gone from the PCI bus",
        "Look at dmesg (Xid). When the GPU is back (a reboot), restart the daemon.",
    )


def _hidden(workers: int) -> list[Finding]:
    if not workers:
        return []
    return [
        Finding(
            "GPU workers",
            "warning",
            f"{workers} workers are in another PID namespace: the daemon does not notice that one "
            "dies in the middle of a set",
            "Give the daemon the PID namespace of the host: hostPID: true in Kubernetes, "
            "--pid=host for a container.",
        )
    ]
