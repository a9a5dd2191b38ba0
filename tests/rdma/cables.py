"""Partial network failures: a device with its link down, a device that loses its packets while its
link is up, and TCP ports of this machine that nobody reaches."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from harness.waiting import eventually

from rdma.rdma_devices import has_gid, netdev, port_state


@contextmanager
def pulled(*devices: str) -> Iterator[None]:
    """Takes the links down for this block. Afterwards they are up and the GIDs are back."""
    for device in devices:
        subprocess.run(["ip", "link", "set", netdev(device), "down"], check=True)
    try:
        for device in devices:
            _await_port(device, "DOWN")
        yield
    finally:
        for device in devices:
            subprocess.run(["ip", "link", "set", netdev(device), "up"], check=True)
    for device in devices:
        _await_port(device, "ACTIVE")
        eventually(partial(has_gid, device), what="its GID is back")


@contextmanager
def cut(device: str) -> Iterator[None]:
    """Loses the device's packets in this block, while its port and link look healthy."""
    loss = ["dev", netdev(device), "root", "netem"]
    _tc("qdisc", "add", *loss, "loss", "100%")
    try:
        yield
    finally:
        _tc("qdisc", "del", *loss)


@contextmanager
def barred(*ports: int) -> Iterator[None]:
    """Loses loopback packets to and from these TCP ports in this block."""
    loopback = ["dev", "lo"]
    bands = ["handle", "1:", "prio", "bands", "4", "priomap", *["0"] * 16]
    _tc("qdisc", "add", *loopback, "root", *bands)
    try:
        _tc("qdisc", "add", *loopback, "parent", "1:4", "netem", "loss", "100%")
        for port in ports:
            for end in ("sport", "dport"):
                match = ["match", "ip", end, str(port), "0xffff"]
                _tc(
                    *("filter", "add", *loopback, "parent", "1:", "protocol", "ip", "u32"),
                    *(*match, "flowid", "1:4"),
                )
        yield
    finally:
        _tc("qdisc", "del", *loopback, "root")


def _tc(*words: str) -> None:
    subprocess.run(["tc", *words], check=True)


def _await_port(device: str, state: str) -> None:
    eventually(lambda: port_state(device) == state, what=f"the port is {state}")
