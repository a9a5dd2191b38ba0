"""The doctor's checks find each fault, report nothing else, and offer a remedy for each finding."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from peercached.admin.status import Cold
from peercached.config import Config
from peercached.doctor import access, firewall, gpu, kernel, memory, packages, peers, ports
from peercached.doctor.devices import Device
from peercached.doctor.finding import Finding, exit_code
from peercached.doctor.store import check_store

GIB = 1 << 30
LINK_LOCAL = {"index": 0, "gid": "fe80::1", "type": "RoCE v2", "netdev": "eth2"}
OF_V1 = {"index": 2, "gid": "::ffff:10.0.0.1", "type": "RoCE v1", "netdev": "eth2"}
ROUTABLE = {"index": 3, "gid": "::ffff:10.0.0.1", "type": "RoCE v2", "netdev": "eth2"}


def device(name: str = "mlx5_0", **port: Any) -> Device:
    fields = {
        "number": 1, "state": "active", "link_layer": "Ethernet", "mtu_bytes": 4096,
        "mtu_max_bytes": 4096, "gids": [LINK_LOCAL, OF_V1, ROUTABLE], **port,
    }  # fmt: skip
    return Device.model_validate({"name": name, "ports": [fields]})


def config(**settings: Any) -> Config:
    return Config(socket_path="/a", admin_socket="/b", node_id="n", **settings)


def examined(*devices: Device, mtus: dict[str, int] | None = None, **settings: Any) -> Any:
    """The (check, level, text) of every finding that is not ok. Each must have a remedy."""
    findings = ports.check_ports(config(**settings), devices, mtus or {})
    wrong = [finding for finding in findings if finding.level != "ok"]
    assert all(finding.remedy for finding in wrong)
    return [(finding.check, finding.level, finding.text) for finding in wrong]


def test_a_good_port_needs_nothing() -> None:
    assert examined(device(), protocol="rdma") == []
    infiniband = device(link_layer="InfiniBand", lid=7, gids=[])
    assert examined(infiniband, protocol="rdma") == []


def test_the_gid_shown_is_that_of_the_nodes_own_address() -> None:
    other = {**ROUTABLE, "index": 5, "gid": "::ffff:10.0.0.2"}
    found = ports.check_ports(config(host="10.0.0.2"), [device(gids=[ROUTABLE, other])], {})
    assert found[0].text == "mlx5_0:1: RoCE v2 GID 5 (10.0.0.2)"


@pytest.mark.parametrize(("protocol", "level"), [("rdma", "failure"), ("auto", "warning")])
def test_missing_rdma_needs_are_failures_only_with_protocol_rdma(protocol: str, level: str) -> None:
    no_gid = examined(device(gids=[OF_V1]), protocol=protocol)
    assert no_gid == [("GIDs", level, "mlx5_0:1 has no RoCE v2 GID")]
    down = examined(device(state="down"), protocol=protocol)
    assert [each[:2] for each in down] == [("ports", "warning"), ("ports", level)]
    shut = Device(name="mlx5_1", error="Permission denied")
    ((check, found, text),) = examined(shut, protocol=protocol)
    assert (check, found) == ("devices", level)
    assert "Permission denied" in text


@pytest.mark.parametrize("address", ["fe80::1", "::ffff:169.254.7.7"])
def test_a_link_local_gid_reaches_no_other_network(address: str) -> None:
    ((check, level, text),) = examined(device(gids=[{**LINK_LOCAL, "gid": address}]))
    assert (check, level) == ("GIDs", "warning")
    assert "behind a router" in text


def test_named_devices_must_be_there_and_active_and_others_do_not_matter() -> None:
    two = (device("mlx5_0"), device("mlx5_1", state="down"))
    assert examined(*two, device_names=["mlx5_0"]) == []
    assert examined(*two, device_names=["mlx5_0:1"]) == []
    down, none = examined(*two, device_names=["mlx5_1"])
    assert down[:2] == ("ports", "failure")
    assert "no port is active" in none[2]
    (unknown,) = examined(*two, device_names=["mlx5_0", "mlx5_0:2"])
    assert unknown[2] == "device_names has mlx5_0:2, which this machine does not have"


def test_a_configured_gid_index_is_there_and_of_roce_v2() -> None:
    assert examined(device(), rdma_gid_index=3) == []
    assert "GID 2 is of RoCE v1" in examined(device(), rdma_gid_index=2)[0][2]
    assert "no GID with index 9" in examined(device(), rdma_gid_index=9)[0][2]


def test_small_packets_are_explained_by_the_network_device() -> None:
    small = device(mtu_bytes=1024)
    ((check, level, text),) = examined(small, mtus={"eth2": 1500})
    assert (check, level) == ("MTU", "warning")
    assert "because the MTU of eth2 is 1500" in text
    assert "carries 1024 now" in examined(small, rdma_mtu=4096, mtus={"eth2": 1500})[0][2]
    assert examined(device(), mtus={"eth2": 4200}, rdma_mtu=4096) == []


def memlock(limit_bytes: int | None, may_lock_all: bool = False, needed: bool = True) -> Finding:
    return memory.check_memlock(limit_bytes, may_lock_all, GIB, "the daemon", needed)


def test_locked_memory_holds_the_pool_and_leaves_room_for_regions() -> None:
    assert memlock(None).level == memlock(0, may_lock_all=True).level == "ok"
    small = memlock(8 << 20)
    assert small.level == "failure"
    assert "8MiB, less than the pool of 1GiB" in small.text
    assert "LimitMEMLOCK" in small.remedy
    assert memlock(8 << 20, needed=False).level == "warning"
    assert memlock(3 * GIB).level == "warning"
    assert "leaves 2GiB" in memlock(3 * GIB).text


def test_huge_pages_are_counted_only_if_they_are_asked_for() -> None:
    def check(asked: bool, held: bool, free: int) -> Finding:
        return memory.check_huge_pages(asked, held, GIB, free, 2 << 20)

    assert check(False, False, 0).level == "ok"
    assert check(True, True, 0).level == "ok"
    assert check(True, False, 512).level == "ok"
    few = check(True, False, 511)
    assert few.level == "failure"
    assert "vm.nr_hugepages=512" in few.remedy


def test_drivers_that_are_missing_are_named() -> None:
    assert kernel.check_drivers(["mlx5_0"], ["mlx5_core"], True, True).level == "ok"
    assert "modprobe ib_uverbs" in kernel.check_drivers(["mlx5_0"], [], False, True).remedy
    card = kernel.check_drivers([], ["mlx5_core"], False, False)
    assert (card.level, "modprobe mlx5_ib" in card.remedy) == ("warning", True)
    assert kernel.check_drivers([], [], False, False).level == "ok"
    assert kernel.check_drivers([], [], False, True).level == "failure"


def test_kernel_tls_is_told_of_either_way() -> None:
    assert kernel.check_tls("mptcp tls\n").text == "the kernel encrypts pages for data_port"
    for without in ("", "mptcp\n"):
        found = kernel.check_tls(without)
        assert (found.level, "modprobe tls" in found.text) == ("ok", True)


def test_device_files_may_be_opened() -> None:
    path = "/dev/infiniband/uverbs0"
    assert kernel.check_doors({path: True}, True).level == "ok"
    shut = kernel.check_doors({path: False}, True)
    assert (shut.level, path in shut.text) == ("failure", True)
    none = kernel.check_doors({}, False)
    assert (none.level, "--device=/dev/infiniband" in none.remedy) == ("warning", True)


def ruleset(policy: str, *ports_accepted: int) -> str:
    chain = {"family": "inet", "table": "filter", "name": "input"}
    entries: list[Any] = [{"chain": {**chain, "hook": "input", "policy": policy}}]
    for port in ports_accepted:
        match = {"match": {"left": {"payload": {"field": "dport"}}, "right": port}}
        rule = {"family": "inet", "table": "filter", "expr": [match, {"accept": None}]}
        entries.append({"rule": rule})
    drop = [{"match": {"right": 4791}}, {"drop": None}]
    entries.append({"rule": {"family": "inet", "table": "filter", "expr": drop}})
    return json.dumps({"nftables": entries})


WANTED = {31998: "tcp", 4791: "udp"}


def test_a_filter_that_drops_by_default_must_accept_our_ports() -> None:
    assert firewall.check_nft(ruleset("accept"), WANTED).level == "ok"
    assert firewall.check_nft("", WANTED).level == "ok"
    assert firewall.check_nft(ruleset("drop", 31998, 4791), WANTED).level == "ok"
    assert "has no peers" in firewall.check_nft(ruleset("drop"), {}).text
    closed = firewall.check_nft(ruleset("drop", 31998), WANTED)
    assert closed.level == "warning"
    assert closed.text.endswith("no rule accepts udp 4791")
    assert "soft-RoCE" in closed.remedy


def test_iptables_drop_policy_must_accept_our_ports() -> None:
    accept = "-A INPUT -p tcp -m tcp --dport 31998 -j ACCEPT\n"
    assert firewall.check_iptables(":INPUT ACCEPT [0:0]\n", WANTED).level == "ok"
    closed = firewall.check_iptables(f"*filter\n:INPUT DROP [0:0]\n{accept}", WANTED)
    assert (closed.level, "udp 4791" in closed.text) == ("warning", True)
    roce = "-A INPUT -p udp -m udp --dport 4791 -j ACCEPT\n"
    assert firewall.check_iptables(f":INPUT DROP [0:0]\n{accept}{roce}", WANTED).level == "ok"


def test_doctor_distinguishes_open_and_refused_ports() -> None:
    with socket.socket() as open_port, socket.socket() as shut:
        open_port.bind(("127.0.0.1", 0))
        open_port.listen()
        shut.bind(("127.0.0.1", 0))  # bound, but not listening
        good = peers.Target("b (pages)", *open_port.getsockname())
        bad = peers.Target("c (pages)", *shut.getsockname())
        answers = peers.ask([good, bad])
    assert [bool(why) for _, why in answers] == [False, True]
    (members,) = peers.check_members(answers)
    assert members.level == "warning"
    assert f"c (pages) at 127.0.0.1:{bad.port}: Connection refused" in members.text
    assert peers.check_members(answers[:1])[0].level == "ok"
    assert [f.level for f in peers.check_heads(answers)] == ["warning"]
    assert [f.level for f in peers.check_heads(answers[1:])] == ["failure"], "all of them"
    assert peers.check_heads([]) == peers.check_members([]) == []


def test_the_exit_code_is_that_of_the_worst() -> None:
    def code(*levels: Any) -> int:
        return exit_code(Finding("x", level, "y") for level in levels)

    assert code() == code("ok", "skipped") == 0
    assert code("ok", "warning") == 1
    assert code("warning", "failure", "ok") == 2


def test_two_owners_of_the_clients_files_are_found() -> None:
    assert packages.check_packages("0.1.0", None) == []
    assert packages.check_packages(None, "0.1.0") == []  # the daemon runs out of a checkout
    (same,) = packages.check_packages("0.1.0", "0.1.0")
    (other,) = packages.check_packages("0.1.0", "0.2.0")
    assert (same.level, other.level) == ("warning", "failure")
    assert "peercached 0.1.0 and peercache-client 0.2.0" in other.text
    assert other.remedy == same.remedy
    assert "pip uninstall peercache-client" in same.remedy


def test_workers_with_more_than_their_group_are_named_and_root_is_not() -> None:
    def process(pid: int, user: int, *groups: int) -> access.Process:
        return access.Process(pid, "sglang", user, frozenset(groups))

    workers = [
        process(1, 1000, 1000, 701),
        process(2, 1000, 1000, 700),
        process(3, 700, 1),
        process(4, 0, 700),
    ]
    found = access.check_workers(workers, 700, {700: "peercached"})
    assert [finding.text.split(",")[0] for finding in found] == [
        "the worker sglang (process 2) has the group peercached",
        "the worker sglang (process 3) runs as the daemon's user",
    ]
    assert all(f.level == "warning" and "peercached-workers" in f.remedy for f in found)


def gpus_wrong(**known: Any) -> list[tuple[str, str]]:
    """(check, level) of the faults with `gpu = "cuda"`. Each must have a remedy."""
    works = {"cards": 2, "driver": gpu.Driver(names=["H100", "H100"])}
    found = gpu.check_gpus("cuda", gpu.Gpus(**{**works, **known}))
    wrong = [one for one in found if one.level not in ("ok", "skipped")]
    assert all(one.remedy for one in wrong)
    return [(one.check, one.level) for one in wrong]


def test_each_fault_of_the_gpu_driver_is_a_failure_with_a_remedy() -> None:
    assert gpus_wrong() == []
    for fault in ("library", "calls", "start", "silence"):
        driver = gpu.Driver(fault=fault, text="the reason")
        (found,) = gpu.check_gpus("cuda", gpu.Gpus(1, driver=driver))
        assert (found.level, "the reason" in found.text) == ("failure", True)
        assert gpus_wrong(driver=driver) == [("GPU driver", "failure")]
    # Without a GPU, the driver that is missing is no fault of its own.
    assert gpus_wrong(cards=0, driver=gpu.Driver(fault="library")) == [("GPU", "failure")]


def test_gpus_that_the_daemon_has_or_does_not_want_are_told() -> None:
    (has,) = gpu.check_gpus("cuda", gpu.Gpus(2, used=["H100", "H100"]))
    assert (has.level, has.text) == ("ok", "the daemon has 2 x H100")
    (off,) = gpu.check_gpus("off", gpu.Gpus(2))
    assert (off.level, "2 GPUs of NVIDIA are here" in off.text) == ("ok", True)
    assert gpu.check_gpus("off", gpu.Gpus())[0].level == "skipped"
    assert gpu.check_gpus("stand-in", gpu.Gpus())[0].level == "warning"


def test_gpu_device_files_are_there_and_open_to_the_daemon() -> None:
    files: dict[str, bool | None] = {"/dev/nvidiactl": True, "/dev/nvidia-uvm": True}
    assert gpus_wrong(doors=files) == []
    files |= {"/dev/nvidia-uvm": None, "/dev/nvidia0": False}
    assert gpus_wrong(doors=files) == [("GPU files", "failure")] * 2
    _, absent, shut = gpu.check_gpus("cuda", gpu.Gpus(1, used=["H100"], doors=files))
    assert ("/dev/nvidia-uvm" in absent.text, "nvidia-modprobe" in absent.remedy) == (True, True)
    assert ("/dev/nvidia0" in shut.text, "SupplementaryGroups=" in shut.remedy) == (True, True)


def test_a_unit_that_hides_gpus_or_workers_is_named_with_its_drop_in() -> None:
    shipped = {"DevicePolicy": "closed", "DeviceAllow": "char-infiniband_cm rw"}
    switched_on = {"DevicePolicy": "closed", "DeviceAllow": "x rw, char-nvidia rw"}
    assert gpus_wrong(unit=shipped) == [("GPU unit", "failure")]
    assert gpus_wrong(unit=switched_on) == gpus_wrong(unit={"DevicePolicy": "auto"}) == []
    invisible = {**switched_on, "ProtectProc": "invisible"}
    assert gpus_wrong(unit=invisible) == [("GPU unit", "warning")]
    assert gpus_wrong(unit={"PrivateDevices": "yes"}) == [("GPU unit", "failure")]


def test_slices_and_gpus_and_workers_that_the_daemon_does_not_see_are_warnings() -> None:
    assert gpus_wrong(cards=8) == [("GPU count", "warning")]
    assert gpus_wrong(cards=1, used=["H100", "H100"], driver=None) == [("GPU count", "warning")]
    assert gpus_wrong(cards=8, slices=7) == [("GPU slices", "warning")]
    assert gpus_wrong(hidden_workers=1) == [("GPU workers", "warning")]


def test_store_is_listed_unless_a_daemon_tells_of_it(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/store"
    [absent] = check_store(url, None)
    assert absent.level == "failure" and "Mount" in absent.remedy
    assert not (tmp_path / "store").exists(), "it makes nothing"
    (tmp_path / "store" / "voids").mkdir(parents=True)
    [empty] = check_store(url, None)
    assert empty.level == "ok" and "no cluster" in empty.text
    (tmp_path / "store" / "voids" / f"store-{0:013}-{0:016}-{0:016}").touch()
    assert "no cluster" not in check_store(url, None)[0].text
    Path(os.fsdecode(bytes(tmp_path) + b"/store/voids/\xff")).touch()
    [foreign] = check_store(url, None)
    assert foreign.level == "failure" and "%FF" in foreign.text and "Rename" in foreign.remedy
    [told] = check_store(url, Cold(store=url, pages=5, objects=2))
    assert told.level == "ok" and "5 pages" in told.text
    assert check_store(url, Cold(store=url, failure="403")) == [] == check_store("", None)
