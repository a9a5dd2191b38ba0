"""The machine's RDMA devices, as the kernel lists them in /sys/class/infiniband."""

import ipaddress
import os
from dataclasses import dataclass
from pathlib import Path

_DEVICES = Path("/sys/class/infiniband")
PORT = 1  # soft-RoCE devices have one


@dataclass(frozen=True)
class Gid:
    """A RoCE v2 address, reached by UDP over IPv4. `index`: its place in the port's GID table."""

    index: int
    address: ipaddress.IPv4Address

    def __str__(self) -> str:
        """The form that verbs need: the IPv4 address mapped into IPv6."""
        return f"::ffff:{self.address}"


def devices() -> list[str]:
    """The devices of this machine: one per node that was asked for."""
    return [f"rxe{node}" for node in range(int(os.environ["RDMA_VM_NODES"]))]


def netdev(device: str) -> str:
    return device.replace("rxe", "rdma")


def roce_v2_ipv4_gid(device: str) -> Gid:
    """Found by type, because the index depends on the order of the addresses."""
    port = _DEVICES / device / "ports" / str(PORT)
    for entry in sorted((port / "gids").iterdir(), key=lambda path: int(path.name)):
        address = ipaddress.IPv6Address(entry.read_text().strip()).ipv4_mapped
        if address is not None and _type(port, entry.name) == "RoCE v2":
            return Gid(int(entry.name), address)
    raise LookupError(f"{device} has no RoCE v2 GID with an IPv4 address")


def has_gid(device: str) -> bool:
    try:
        return bool(roce_v2_ipv4_gid(device))
    except LookupError:
        return False


def _type(port: Path, index: str) -> str:
    try:
        return (port / "gid_attrs" / "types" / index).read_text().strip()
    except OSError:  # EINVAL: no GID there
        return ""


def port_state(device: str) -> str:
    """E.g. ACTIVE or DOWN."""
    text = (_DEVICES / device / "ports" / str(PORT) / "state").read_text()
    return text.partition(": ")[2].strip()
