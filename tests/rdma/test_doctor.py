"""`peercachectl devices` and `peercachectl doctor` on real ports, with and without faults."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rdma.cables import pulled
from rdma.rdma_devices import devices, netdev, roce_v2_ipv4_gid

LONG_ENOUGH_S = 120


def ctl(
    tmp_path: Path, *arguments: str, under: tuple[str, ...] = (), **keys: str
) -> tuple[int, Any]:
    """(exit code, document) of a command with these keys in its environment. `under`: a command
    prefix."""
    command = [sys.executable, "-m", "peercached.cli.ctl"]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PEERCACHED_")}
    environment.update({f"PEERCACHED_{name.upper()}": value for name, value in keys.items()})
    socket = str(tmp_path / "none.sock")
    done = subprocess.run(
        [*under, *command, "--socket", socket, *arguments, "--json"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=LONG_ENOUGH_S,
        check=False,
    )
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def wrong(document: Any) -> list[tuple[str, str, str]]:
    """(check, level, text) of the warnings and failures."""
    return [
        (finding["check"], finding["level"], finding["text"])
        for finding in document["findings"]
        if finding["level"] in ("warning", "failure")
    ]


def test_devices_lists_every_port_with_its_gid(tmp_path: Path) -> None:
    code, listed = ctl(tmp_path, "devices")
    assert code == 0
    assert [device["name"] for device in listed] == devices()
    for device in listed:
        (port,) = device["ports"]
        assert (port["state"], port["link_layer"]) == ("active", "Ethernet")
        index = roce_v2_ipv4_gid(device["name"]).index
        (gid,) = [gid for gid in port["gids"] if gid["index"] == index]
        assert (gid["type"], gid["netdev"]) == ("RoCE v2", netdev(device["name"]))


def test_a_good_machine_has_nothing_to_mend(tmp_path: Path) -> None:
    code, document = ctl(tmp_path, "doctor", protocol="rdma")
    assert (code, wrong(document)) == (0, [])
    checked = {finding["check"] for finding in document["findings"]}
    assert checked >= {"drivers", "device files", "locked memory", "GIDs", "MTU"}


@pytest.mark.slow
def test_a_port_that_is_down_is_named(tmp_path: Path) -> None:
    name = devices()[0]
    with pulled(name):
        code, document = ctl(tmp_path, "doctor", protocol="rdma")
        assert (code, wrong(document)) == (
            1,
            [("ports", "warning", f"{name}:1 is down, so it is no rail")],
        )
        code, document = ctl(tmp_path, "doctor", protocol="rdma", device_names=name)
        assert code == 2
        assert [level for _, level, _ in wrong(document)] == ["failure", "failure"]


@pytest.mark.slow
def test_small_packets_are_explained(tmp_path: Path) -> None:
    name = devices()[0]
    device = netdev(name)
    before = Path(f"/sys/class/net/{device}/mtu").read_text().strip()
    subprocess.run(["ip", "link", "set", device, "mtu", "1500"], check=True)
    try:
        code, document = ctl(tmp_path, "doctor")
        ((check, _, text),) = wrong(document)
        assert (code, check) == (1, "MTU")
        assert f"packets of 1024 bytes, of 4096 that it can, because the MTU of {device}" in text
        code, document = ctl(tmp_path, "doctor", rdma_mtu="4096")
        assert code == 2
    finally:
        subprocess.run(["ip", "link", "set", device, "mtu", before], check=True)


@pytest.mark.slow
def test_doctor_reports_too_little_locked_memory_for_the_pool(tmp_path: Path) -> None:
    little = ("setpriv", "--bounding-set=-ipc_lock", "prlimit", "--memlock=65536")
    code, document = ctl(tmp_path, "doctor", under=little, protocol="rdma", pool_size="64mb")
    ((check, level, text),) = wrong(document)
    assert (code, check, level) == (2, "locked memory", "failure")
    assert "may lock 64KiB, less than the pool of 64MiB" in text
