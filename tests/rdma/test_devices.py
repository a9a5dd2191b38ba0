"""The machine has the devices that all other tests here rely on."""

import ipaddress
import json
import subprocess

from pyverbs.device import Context, get_device_list
from pyverbs.enums import IBV_PORT_ACTIVE

from rdma.cables import pulled
from rdma.rdma_devices import PORT, devices, port_state, roce_v2_ipv4_gid


def test_every_node_has_an_active_device() -> None:
    assert {device.name.decode() for device in get_device_list()} == set(devices())
    for name in devices():
        assert Context(name=name).query_port(PORT).state == IBV_PORT_ACTIVE


def test_every_device_has_a_roce_v2_gid_of_its_ipv4_address() -> None:
    for node, name in enumerate(devices(), start=1):
        gid = roce_v2_ipv4_gid(name)
        assert gid.address == ipaddress.IPv4Address(f"10.99.0.{node}")
        told = Context(name=name).query_gid(PORT, gid.index).gid
        assert ipaddress.IPv6Address(told).ipv4_mapped == gid.address


def test_a_link_that_is_down_shows_in_the_port() -> None:
    name = devices()[0]
    with pulled(name):
        assert port_state(name) == "DOWN"
    assert port_state(name) == "ACTIVE"


def test_resources_in_use_are_listed() -> None:
    shown = subprocess.run(
        ["rdma", "-j", "resource", "show"], capture_output=True, text=True, check=True
    )
    assert {row["ifname"] for row in json.loads(shown.stdout)} == set(devices())
