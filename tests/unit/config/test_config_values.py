"""Sizes, addresses, modes and fault plans: valid forms are accepted, all others refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peercached.config import values


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("1073741824", 1 << 30),
        (4096, 4096),
        ("8gb", 8 << 30),
        ("8GB", 8 << 30),
        ("512MiB", 512 << 20),
        ("512 mib", 512 << 20),
        ("256Gi", 256 << 30),
        ("64k", 64 << 10),
        ("1.5T", 3 << 39),
        ("0.5g", 1 << 29),
        ("12b", 12),
    ],
)
def test_sizes_are_read_in_units_of_1024(text: object, size_bytes: int) -> None:
    assert values.parse_size(text) == size_bytes


@pytest.mark.parametrize(
    "text", ["", "gb", "8 gibi", "8gbb", "-1", "1e9", "1.5", "1,5g", "0x10", "8 8", True, 1.5, [1]]
)
def test_invalid_size_is_refused_with_the_accepted_forms(text: object) -> None:
    with pytest.raises(ValueError, match=r"; "):
        values.parse_size(text)


@given(st.integers(min_value=0, max_value=1 << 60))
def test_a_printed_size_reads_back_as_itself(size_bytes: int) -> None:
    assert values.parse_size(values.format_size(size_bytes)) == size_bytes


@given(st.text(max_size=12))
def test_any_text_is_a_size_or_a_clear_error(text: str) -> None:
    try:
        assert values.parse_size(text) >= 0
    except ValueError as error:
        assert "; " in str(error)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("10.0.0.1:31998", ("10.0.0.1", 31998)),
        ("head-1.cluster.example:1", ("head-1.cluster.example", 1)),
        ("[::1]:31998", ("::1", 31998)),
        ("localhost:65535", ("localhost", 65535)),
    ],
)
def test_heads_are_host_and_port(text: str, address: tuple[str, int]) -> None:
    assert values.split_address(text) == address


@pytest.mark.parametrize(
    "text",
    ["head", "head:", ":31998", "head:0", "head:65536", "::1:31998", "1.2.3:5", "1.2.3.4.5:6",
     "a b:1", "head:x", "256.0.0.1:1", "http://head:1", "-head:1", "head:\u0661"],
)  # fmt: skip
def test_malformed_heads_are_refused_by_name(text: str) -> None:
    with pytest.raises(ValueError, match=r"host:port|brackets"):
        values.split_address(text)


def test_a_head_named_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="twice"):
        values.check_heads(["a:1", "b:1", "a:1"])


def test_more_heads_than_useful_are_refused() -> None:
    with pytest.raises(ValueError, match="names 17 heads"):
        values.check_heads([f"h{i}:1" for i in range(17)])


def test_a_mode_is_octal_text_and_leaves_the_daemon_in() -> None:
    assert values.parse_mode("660") == values.parse_mode("0660") == "0660"
    for bad in ("0460", "660x", "888", 660, "66", ""):
        with pytest.raises(ValueError, match="; "):
            values.parse_mode(bad)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "a..b", "1.2.3", "", "a b"])
def test_a_host_that_peers_cannot_connect_to_is_refused(host: str) -> None:
    with pytest.raises(ValueError, match="; "):
        values.check_host(host)


@pytest.mark.parametrize(
    "plan",
    [
        "",
        "seed=7",
        "seed=7,corrupt=0.01,hang=1",
        "delay_us_max=50",
        "disk_write_stall=1,disk_stall_ms=50",
    ],
)
def test_fault_plans_pass(plan: str) -> None:
    assert values.check_faults(plan) == plan


@pytest.mark.parametrize(
    "plan", ["corrupt", "corrupt=2", "corupt=0.1", "seed=x", "hang=nan", "disk_eio=1"]
)
def test_a_bad_part_of_a_fault_plan_is_named(plan: str) -> None:
    with pytest.raises(ValueError, match=plan):
        values.check_faults(plan)


def test_devices_are_names_with_ports() -> None:
    names = ["mlx5_0", "mlx5_1:2", "rocep24s0", "rxe0:1"]
    assert values.check_devices(names) == names


@pytest.mark.parametrize("name", ["", "mlx5 0", "mlx5_0:", "mlx5_0:0", "mlx5_0:255", "../x", ":1"])
def test_invalid_device_is_refused_by_name(name: str) -> None:
    with pytest.raises(ValueError, match=r"is no RDMA device; give names such as mlx5_0"):
        values.check_devices(["rxe0", name])


def test_a_port_named_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="names port 1 of mlx5_0 twice"):
        values.check_devices(["mlx5_0", "mlx5_0:1"])


def test_more_devices_than_a_host_has_are_refused() -> None:
    with pytest.raises(ValueError, match="names 17 devices; 16 at most"):
        values.check_devices([f"mlx5_{number}" for number in range(17)])


def test_only_the_mtus_of_infiniband_pass() -> None:
    assert [values.check_mtu(mtu) for mtu in (0, 256, 4096)] == [0, 256, 4096]
    with pytest.raises(ValueError, match="give 256, 512"):
        values.check_mtu(1500)


def test_partition_keys_may_be_hexadecimal() -> None:
    assert values.parse_hexadecimal("0x8001") == 0x8001
    assert values.parse_hexadecimal(" 0XFFFF ") == 0xFFFF
    assert values.parse_hexadecimal(7) == 7
    with pytest.raises(ValueError, match="not a number"):
        values.parse_hexadecimal(True)
