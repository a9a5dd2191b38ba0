"""The RDMA devices of this machine, through pyverbs.

pyverbs must match the system's libibverbs. So it comes with the distribution, for the
distribution's Python, which may differ from ours. probe.py runs there, in its own process.
"""

from __future__ import annotations

import ipaddress
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel

from peercached.doctor.probe import NO_PYVERBS

_PROBE = Path(__file__).with_name("probe.py")
PYTHONS = ("/usr/bin/python3", sys.executable)
_PROBE_S = 30.0

HOW_TO_GET = (
    "apt-get install python3-pyverbs ibverbs-providers (or the distribution's packages of "
    "rdma-core; the one on the Python index need not match the system's libibverbs)"
)


class PyverbsMissing(Exception):
    """No Python on this machine has pyverbs. The text says how to install it."""


class ProbeFailed(Exception):
    """pyverbs is installed, but the probe failed."""


class Gid(BaseModel):
    index: int
    gid: str
    type: str  # "IB", "RoCE v1", "RoCE v2"
    netdev: str = ""

    def address(self) -> str:
        """The usual notation: IPv4 for an IPv4-mapped GID, else IPv6."""
        address = ipaddress.IPv6Address(self.gid)
        return str(address.ipv4_mapped or address)

    def link_local(self) -> bool:
        return ipaddress.ip_address(self.address()).is_link_local  # includes 169.254/16


class Port(BaseModel):
    number: int
    state: str  # "active", "down", ...
    link_layer: str  # "Ethernet", "InfiniBand"
    lid: int = 0
    mtu_bytes: int = 0
    mtu_max_bytes: int = 0
    rate_gbps: float = 0.0
    gids: list[Gid] = []

    @property
    def active(self) -> bool:
        return self.state == "active"

    @property
    def ethernet(self) -> bool:
        return self.link_layer == "Ethernet"

    @property
    def netdev(self) -> str:
        return next((gid.netdev for gid in self.gids if gid.netdev), "")

    def roce_v2(self) -> list[Gid]:
        return [gid for gid in self.gids if gid.type == "RoCE v2"]


class Device(BaseModel):
    name: str
    numa_node: int = -1
    firmware: str = ""
    max_mr_bytes: int = 0
    max_qps: int = 0
    max_reads: int = 0  # READs in flight per queue pair
    ports: list[Port] = []
    error: str = ""  # why it could not be opened

    def port_name(self, port: Port) -> str:
        """The form that the key device_names takes."""
        return f"{self.name}:{port.number}"


def find_devices(pythons: Sequence[str] = ()) -> list[Device]:
    """All devices. `error` is set if one cannot be opened. PyverbsMissing, ProbeFailed."""
    for python in pythons or PYTHONS:
        try:
            done = subprocess.run(
                [python, "-I", str(_PROBE)],
                capture_output=True,
                text=True,
                timeout=_PROBE_S,
                check=False,
            )
        except FileNotFoundError:
            continue
        except subprocess.TimeoutExpired as error:
            raise ProbeFailed(f"the RDMA devices did not answer in {_PROBE_S:g} s") from error
        if done.returncode == NO_PYVERBS:
            continue
        if done.returncode != 0:
            reason = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
            raise ProbeFailed(f"asking for the RDMA devices with {python} failed: {reason}")
        return [Device.model_validate(each) for each in json.loads(done.stdout)]
    raise PyverbsMissing(f"pyverbs is not installed, which lists RDMA devices: {HOW_TO_GET}")
