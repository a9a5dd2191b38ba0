"""Drivers, access to the device files in /dev/infiniband, and the kernel's TLS."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from peercached.doctor.finding import Finding, Level, trouble

# Driver of a network card -> the module that provides its RDMA device. It lists a driver only
# if nearly all its cards support RDMA, so that a plain card does not look broken.
RDMA_MODULE = {"mlx5_core": "mlx5_ib", "mlx4_core": "mlx4_ib"}


def check_drivers(
    devices: Collection[str], cards: Collection[str], verbs: bool, needed: bool
) -> Finding:
    """`devices`: entries of /sys/class/infiniband; `cards`: keys of RDMA_MODULE that drive a card
    here; `verbs`: the kernel's interface for processes is loaded."""
    check = "drivers"
    names = ", ".join(sorted(devices))
    if devices and verbs:
        return Finding(check, "ok", f"the kernel has {names}")
    if devices:
        return Finding(
            check,
            trouble(needed),
            f"the kernel has {names}, but not the module ib_uverbs, so no process can use them",
            "modprobe ib_uverbs (the package rdma-core loads it at boot).",
        )
    if cards:
        modules = " ".join(sorted(RDMA_MODULE[card] for card in cards))
        return Finding(
            check,
            trouble(needed),
            f"there is a card of {', '.join(sorted(cards))}, but the kernel has no RDMA device",
            f"modprobe {modules} ib_uverbs; for a container, load them on the host.",
        )
    level: Level = "failure" if needed else "ok"
    remedy = "Set protocol to auto or tcp, or repair the card." if needed else ""
    return Finding(check, level, "this machine has no RDMA device", remedy)


def check_doors(doors: Mapping[str, bool], needed: bool) -> Finding:
    """`doors`: /dev/infiniband/uverbs* -> whether this user may read and write it."""
    check = "device files"
    if not doors:
        return Finding(
            check,
            trouble(needed),
            "/dev/infiniband has no uverbs files: no process here can open a device",
            "modprobe ib_uverbs; for a container: --device=/dev/infiniband.",
        )
    shut = sorted(path for path, may in doors.items() if not may)
    if shut:
        return Finding(
            check,
            trouble(needed),
            f"this user may not open {', '.join(shut)}",
            "Run as the daemon's user, or let it: a udev rule as in rdma-core "
            '(KERNEL=="uverbs*", MODE="0666").',
        )
    return Finding(check, "ok", f"{len(doors)} of /dev/infiniband/uverbs* may be opened")


def check_tls(protocols: str) -> Finding:
    """`protocols`: /proc/sys/net/ipv4/tcp_available_ulp."""
    if "tls" in protocols.split():
        text = "the kernel encrypts pages for data_port"
    else:
        text = (
            "the daemon encrypts pages for data_port by itself, with more processor time: the "
            "kernel's module tls is not loaded (modprobe tls)"
        )
    return Finding("kernel TLS", "ok", text)
