"""Cables that are pulled: a device whose network link is down. And bad ones, on which packets get
lost while the link is up."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from harness.waiting import eventually

from rdma.rdma_devices import has_gid, netdev, port_state


@contextmanager
def pulled(*devices: str) -> Iterator[None]:
    """Down in this block, and up again, with its address, when it is over."""
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
    """Its packets are lost in this block; port and link say nothing of it."""
    loss = ["dev", netdev(device), "root", "netem"]
    subprocess.run(["tc", "qdisc", "add", *loss, "loss", "100%"], check=True)
    try:
        yield
    finally:
        subprocess.run(["tc", "qdisc", "del", *loss], check=True)


def _await_port(device: str, state: str) -> None:
    eventually(lambda: port_state(device) == state, what=f"the port is {state}")
