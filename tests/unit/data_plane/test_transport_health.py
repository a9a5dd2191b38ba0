"""How the daemon reports its transport: the log at start, and the sentences of `status`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from harness.said import said as findings

from peercached.data_plane.transport import (
    describe,
    rdma_devices,
    say_transport,
)

RAIL = {
    "rail": 0, "device": "mlx5_0", "port": 1, "gid": "10.0.0.1", "gid_index": 3, "netdev": "eth2",
    "mtu": 4096, "rate_gbps": 400.0, "numa_node": 1, "up": True, "why": "", "registered_bytes": 0,
    "doubted": [],
}  # fmt: skip


def rdma(*rails: dict[str, Any], fallback_reads: int = 0) -> dict[str, Any]:
    return {
        "protocol": "rdma", "why": "2 active ports", "rails": list(rails),
        "fallback_reads": fallback_reads,
    }  # fmt: skip


def tcp(why: str) -> dict[str, Any]:
    return {"protocol": "tcp", "why": why, "rails": [], "fallback_reads": 0}


def said(wanted: str, transport: dict[str, Any], devices: list[str]) -> list[tuple[str, str, str]]:
    found = findings(lambda say: say_transport(say, wanted, transport, devices))
    return [(one["severity"], one["sentence"], one["remedy"]) for one in found]


def test_log_describes_the_chosen_transport_and_each_rail() -> None:
    assert describe(rdma(RAIL)) == [
        "pages travel over RDMA: 2 active ports",
        "rail 0: mlx5_0:1 on eth2, GID 3 (10.0.0.1), MTU 4096, 400 Gb/s, NUMA node 1",
    ]
    assert describe(tcp("no RDMA devices")) == ["pages travel over TCP: no RDMA devices"]


def test_tcp_beside_rdma_devices_is_reported_with_reason_and_remedy() -> None:
    down = tcp("mlx5_0: port 1 is down")
    ((severity, sentence, remedy),) = said("auto", down, ["mlx5_0", "mlx5_1"])
    assert severity == "warning"
    assert "(mlx5_0, mlx5_1): mlx5_0: port 1 is down." in sentence
    assert "peercachectl doctor" in remedy
    assert not said("tcp", down, ["mlx5_0"]), "asked for"
    assert not said("auto", down, []), "no devices, nothing to mend"


def test_down_rail_is_a_warning_and_no_rail_an_error() -> None:
    down = {**RAIL, "rail": 1, "device": "mlx5_1", "up": False, "why": "the port is down"}
    assert not said("rdma", rdma(RAIL), ["mlx5_0"])
    ((severity, sentence, _),) = said("rdma", rdma(RAIL, down), ["mlx5_0"])
    assert (severity, sentence) == ("warning", "Rail 1 (mlx5_1:1) is down: the port is down.")
    _, (severity, sentence, _) = said("rdma", rdma(down), ["mlx5_0"])
    assert (severity, "are misses" in sentence) == ("error", True)
    _, (severity, sentence, _) = said("auto", rdma(down, fallback_reads=7), ["mlx5_0"])
    assert (severity, "come over TCP (7 reads so far)" in sentence) == ("warning", True)


def test_reads_that_fell_back_are_remembered_when_the_rails_are_up_again() -> None:
    ((severity, sentence, _),) = said("auto", rdma(RAIL, fallback_reads=7), ["mlx5_0"])
    assert (severity, sentence[:8]) == ("info", "7 reads ")


def test_peers_that_no_rail_reaches_are_counted() -> None:
    silent = {**rdma(RAIL, fallback_reads=7), "fallback_peers": 2}
    ((severity, sentence, _),) = said("auto", silent, ["mlx5_0"])
    assert (severity, "No rail reaches 2 of the peers" in sentence) == ("warning", True)


def test_rail_that_misses_peers_is_named_with_the_reason() -> None:
    peers = [{"node_id": name, "why": "mlx5_0:1: no answer for 537 ms"} for name in "bcdef"]
    sick = {**RAIL, "doubted": peers}
    ((severity, sentence, remedy),) = said("auto", rdma(sick), ["mlx5_0"])
    assert severity == "warning"
    assert sentence == (
        "Rail 0 (mlx5_0:1) does not reach b, c, d and 2 more: mlx5_0:1: no answer for 537 ms."
    )
    assert "the peer itself is healthy" in remedy
    ((_, sentence, _),) = said("auto", rdma({**RAIL, "doubted": peers[:1]}), ["mlx5_0"])
    assert "does not reach b: " in sentence


def test_rdma_devices_lists_the_kernels_device_folder(tmp_path: Path) -> None:
    assert rdma_devices(tmp_path / "nothing") == []
    (tmp_path / "rxe1").mkdir()
    (tmp_path / "rxe0").mkdir()
    assert rdma_devices(tmp_path) == ["rxe0", "rxe1"]
