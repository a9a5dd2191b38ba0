"""Active ports, their GIDs, and their packet sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from peercached.config import Config
from peercached.doctor.devices import Device, Port
from peercached.doctor.finding import Finding, Level, trouble

# Ethernet's payload must hold a packet of 4096 bytes and its headers.
NETDEV_MTU_FOR_4096 = 4200


def needs_rdma(config: Config) -> bool:
    return config.protocol == "rdma"


def check_ports(
    config: Config, devices: Sequence[Device], mtus: Mapping[str, int]
) -> list[Finding]:
    """`mtus`: netdev -> its MTU in bytes."""
    findings = [_unopened(config, device) for device in devices if device.error]
    ports = {d.port_name(p): (d, p) for d in devices for p in d.ports}
    wanted = [name if ":" in name else f"{name}:1" for name in config.device_names]
    findings += [_unknown(name, list(ports)) for name in wanted if name not in ports]
    chosen = {name: ports[name] for name in wanted or ports if name in ports}
    for name, (_, port) in chosen.items():
        if not port.active:
            findings.append(_inactive(name, port, named=name in wanted))
            continue
        findings.append(_gids(config, name, port))
        findings.append(_mtu(config, name, port, mtus))
    if chosen and not any(port.active for _, port in chosen.values()):
        findings.append(
            Finding(
                "ports",
                trouble(needs_rdma(config)),
                "no port is active: there is no rail",
                "See the ports above; peers are read over TCP meanwhile (protocol auto).",
            )
        )
    return findings


def _unopened(config: Config, device: Device) -> Finding:
    return Finding(
        "devices",
        trouble(needs_rdma(config)),
        f"{device.name} cannot be opened: {device.error}",
        "Look at the checks of drivers and device files, and at the kernel's log (dmesg); "
        "ibverbs-providers must be installed.",
    )


def _unknown(name: str, known: list[str]) -> Finding:
    return Finding(
        "ports",
        "failure",
        f"device_names has {name}, which this machine does not have",
        f"Name one of these: {', '.join(known) or 'there are none'}.",
    )


def _inactive(name: str, port: Port, named: bool) -> Finding:
    level: Level = "failure" if named else "warning"
    netdev = port.netdev or "its network device"
    remedy = (
        f"ip link set {netdev} up; then look at the cable and the switch port."
        if port.ethernet
        else "Look at the cable, the switch port and the subnet manager (ibstat, sminfo)."
    )
    return Finding("ports", level, f"{name} is {port.state}, so it is no rail", remedy)


def _gids(config: Config, name: str, port: Port) -> Finding:
    check = "GIDs"
    if config.rdma_gid_index >= 0:
        return _chosen_gid(config.rdma_gid_index, name, port)
    if not port.ethernet:
        return Finding(check, "ok", f"{name}: InfiniBand, lid {port.lid}")
    netdev = port.netdev or "its network device"
    routable = [gid for gid in port.roce_v2() if not gid.link_local()]
    if routable:
        gid = next((g for g in routable if g.address() == config.host), routable[0])
        return Finding(check, "ok", f"{name}: RoCE v2 GID {gid.index} ({gid.address()})")
    if port.roce_v2():
        return Finding(
            check,
            "warning",
            f"{name} has link-local RoCE v2 GIDs only: peers behind a router cannot be reached",
            f"Give {netdev} an IP address that the peers can route to.",
        )
    return Finding(
        check,
        trouble(needs_rdma(config)),
        f"{name} has no RoCE v2 GID",
        f"Give {netdev} an IP address; for older cards: cma_roce_mode -d DEVICE -m 2.",
    )


def _chosen_gid(index: int, name: str, port: Port) -> Finding:
    gid = next((gid for gid in port.gids if gid.index == index), None)
    remedy = "Remove rdma_gid_index, so that it is chosen by type and address."
    if gid is None:
        return Finding("GIDs", "failure", f"{name} has no GID with index {index}", remedy)
    if port.ethernet and gid.type != "RoCE v2":
        return Finding("GIDs", "failure", f"{name}: GID {index} is of {gid.type}", remedy)
    return Finding("GIDs", "ok", f"{name}: GID {index} as configured ({gid.address()})")


def _mtu(config: Config, name: str, port: Port, mtus: Mapping[str, int]) -> Finding:
    check = "MTU"
    if config.rdma_mtu > port.mtu_bytes:
        return Finding(
            check,
            "failure",
            f"rdma_mtu is {config.rdma_mtu}, but {name} carries {port.mtu_bytes} now",
            "Remove rdma_mtu, or raise the MTU of the port's network device on all hosts.",
        )
    of_netdev = mtus.get(port.netdev)
    if port.ethernet and port.mtu_bytes < port.mtu_max_bytes and of_netdev is not None:
        return Finding(
            check,
            "warning",
            f"{name} carries packets of {port.mtu_bytes} bytes, of {port.mtu_max_bytes} that "
            f"it can, because the MTU of {port.netdev} is {of_netdev}",
            f"ip link set {port.netdev} mtu {NETDEV_MTU_FOR_4096} (or 9000), on all hosts and "
            "their switches.",
        )
    return Finding(check, "ok", f"{name}: {port.mtu_bytes} bytes")
