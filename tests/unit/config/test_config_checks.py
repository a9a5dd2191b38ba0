"""Impossible combinations are refused with the key, the value and the remedy."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from peercached.config import Config, ConfigError, checks, load
from peercached.config.checks import impossible
from peercached.config.memory import available_bytes, memory_limit_bytes, too_little_available
from peercached.config.paths import admin_socket_of


def complaints(**options: Any) -> dict[str, str]:
    """Maps each refused key to its complaint."""
    try:
        load(None, {}, options)
    except ConfigError as error:
        return {problem.key: str(problem) for problem in error.problems}
    return {}


def test_two_ports_may_not_be_equal() -> None:
    said = complaints(meta_port="4000", data_port="4000")
    assert "data_port = 4000 (option --data-port): is meta_port too" in said["data_port"]


def test_ports_of_routers_collide_with_no_other() -> None:
    assert not complaints(kv_events_port="5557", router_port="5559")
    assert "is metrics_port too" in complaints(router_port="31997")["router_port"]
    assert (
        "is router_port too" in complaints(kv_events_port="5557", router_port="5557").popitem()[1]
    )
    said = complaints(kv_events_port="31996")["kv_events_port"]
    assert "needs the next port, too, and that is metrics_port" in said
    assert not complaints(kv_events_port="31996", metrics_enabled=False)


def test_the_ttl_is_at_least_three_heartbeats() -> None:
    said = complaints(member_ttl_s="2", heartbeat_interval_s="1")
    assert "set member_ttl_s to at least 3" in said["member_ttl_s"]
    assert not complaints(member_ttl_s="3", heartbeat_interval_s="1")
    assert not complaints(member_ttl_s="0.3", heartbeat_interval_s="0.1")


def test_a_loopback_host_cannot_meet_heads_elsewhere() -> None:
    said = complaints(host="127.0.0.1", discovery_addr="127.0.0.1:1,192.0.2.1:31998")
    assert "192.0.2.1:31998" in said["host"]
    assert not complaints(host="127.0.0.2", discovery_addr="127.0.0.1:31998")


def test_a_memory_only_node_lends_its_memory_to_somebody() -> None:
    assert "set discovery_addr" in complaints(role="memory")["role"]
    assert "no workers" in complaints(role="memory", gpu="cuda")["gpu"]
    assert not complaints(role="memory", discovery_addr="127.0.0.1:31998")


def test_a_socket_path_fits_the_kernels_107_bytes() -> None:
    longest = "/" + "x" * 106
    assert not complaints(socket_path=longest, admin_socket="/admin/a")
    # The limit counts bytes, not characters.
    said = complaints(socket_path="/" + "é" * 54, admin_socket="/admin/a")
    assert "109 bytes" in said["socket_path"]
    said = complaints(socket_path="/" + "x" * 101 + ".sock")
    assert "admin_socket" in said  # its path is six bytes longer


def test_device_names_are_refused_with_protocol_tcp() -> None:
    said = complaints(protocol="tcp", device_names="mlx5_0")
    assert "protocol is tcp" in said["device_names"]
    for protocol in ("auto", "rdma"):
        assert not complaints(protocol=protocol, device_names="mlx5_0,mlx5_1:2")


def test_sockets_are_absolute_and_two() -> None:
    assert "absolute" in complaints(socket_path="p.sock", admin_socket="/admin/a")["socket_path"]
    assert "socket_path too" in complaints(socket_path="/a", admin_socket="/a")["admin_socket"]


def test_the_admin_socket_is_never_in_the_folder_that_engines_mount() -> None:
    assert load(None, {}, {"socket_path": "/x/a.sock"}).config.admin_socket == "/x-admin/a.sock"
    for path in ("/a", "/x/a", "a", "../a"):
        folder = Path(admin_socket_of(path)).parent
        assert folder.is_absolute()
        assert folder != Path(path).absolute().parent
        assert Path(path).resolve().parent not in folder.parents or path == "/a"


def test_a_folder_of_the_admin_socket_that_others_may_open_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "admin"
    path = str(folder / "a.sock")
    assert not complaints(admin_socket=path), "the daemon makes it"
    folder.mkdir(mode=0o700)
    assert not complaints(admin_socket=path)
    for mode in (0o710, 0o750, 0o701, 0o777):
        folder.chmod(mode)
        said = complaints(admin_socket=path)["admin_socket"]
        assert f"mode {mode:04o}" in said
        assert f"chmod 700 {folder}" in said


def test_a_pool_larger_than_memory_is_refused_before_the_kernel_kills() -> None:
    (problem,) = impossible(
        Config(pool_size=4 << 30, socket_path="/a", admin_socket="/b/b"), memory_bytes=3 << 30
    )
    assert problem.key == "pool_size"
    assert "4GiB, and the 128MiB that the daemon needs besides" in problem.what
    assert "at most 2944MiB" in problem.remedy


def test_a_pool_beyond_the_available_memory_is_told_with_both_sizes(tmp_path: Path) -> None:
    config = Config(pool_size=4 << 30, socket_path="/a", admin_socket="/b")
    assert too_little_available(config, 4 << 30) == ""
    assert too_little_available(config, None) == ""
    problem = too_little_available(config, 3 << 30)
    assert "pool_size = 4GiB, but only 3072 MiB" in problem and "set pool_size below" in problem
    assert too_little_available(config.model_copy(update={"huge_pages": True}), 3 << 30) == "", (
        "huge pages are reserved, so they are in use already"
    )
    file = tmp_path / "pool"
    warm = config.model_copy(update={"pool_file": str(file)})
    assert too_little_available(warm, 3 << 30) == problem
    file.touch()
    assert too_little_available(warm, 3 << 30) == "", "its pages are in memory already"


def test_the_available_memory_is_what_the_host_and_the_cgroups_have_left(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    here, limit = available_bytes(), memory_limit_bytes(huge_pages=False)
    assert here is not None and limit is not None and here > 0
    file, group = tmp_path / "meminfo", tmp_path / "pods" / "one"
    file.write_text("MemTotal:  8 kB\nMemAvailable:       3 kB\n")
    monkeypatch.setattr("peercached.config.memory._OWN_GROUPS", tmp_path / "own")
    monkeypatch.setattr("peercached.config.memory._CGROUP", tmp_path)
    assert available_bytes(file) == 3072
    assert available_bytes(tmp_path / "none") is None
    (tmp_path / "own").write_text("0::/pods/one\n")
    group.mkdir(parents=True)
    (group / "memory.max").write_text("max\n")
    for name, number in (("max", 4000), ("current", 2500)):
        (group.parent / f"memory.{name}").write_text(f"{number}\n")
    assert available_bytes(file) == 1500, "the other pods use the rest"
    stat = "anon 800\nfile 1700\ninactive_file 300\nactive_file 100\n"
    (group.parent / "memory.stat").write_text(stat)
    assert available_bytes(file) == 1900, "a cache of files gives way"
    (tmp_path / "own").write_text("4:memory:/one\n0::/\n")
    first = tmp_path / "memory" / "one"
    first.mkdir(parents=True)
    (first / "memory.limit_in_bytes").write_text("5000\n")
    (first / "memory.usage_in_bytes").write_text("4000\n")
    (first / "memory.stat").write_text("active_file 9\ntotal_active_file 200\n")
    assert available_bytes(file) == 1200


def test_the_memory_limit_is_known_here() -> None:
    limit = memory_limit_bytes(huge_pages=False)
    assert limit is not None
    assert limit > 1 << 20


@pytest.mark.parametrize(
    ("own_groups", "file"),
    [
        ("0::/pods/one\n", "pods/memory.max"),
        ("0::/pods/one\n", "pods/one/memory.high"),
        ("0::/of/the/host\n", "memory.max"),
        ("4:memory:/pods/one\n0::/\n", "memory/pods/memory.limit_in_bytes"),
    ],
)
def test_limits_of_both_versions_of_cgroups_count(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, own_groups: str, file: str
) -> None:
    (tmp_path / "own").write_text(own_groups)
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).write_text(f"{300 << 20}\n")
    monkeypatch.setattr("peercached.config.memory._OWN_GROUPS", tmp_path / "own")
    monkeypatch.setattr("peercached.config.memory._CGROUP", tmp_path)
    options = {"socket_path": str(tmp_path / "sock")}
    assert load(None, {}, {**options, "pool_size": "172MiB"})
    with pytest.raises(ConfigError, match="set pool_size to at most 172MiB") as refused:
        load(None, {}, {**options, "pool_size": "173MiB"})
    assert "do not fit the 314572800 bytes" in str(refused.value)


def test_a_pool_of_huge_pages_may_be_larger_than_the_containers_memory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("peercached.config.memory._cgroups", lambda: [(32 << 20, 0)])
    options = {"pool_size": "64MiB", "socket_path": str(tmp_path / "sock")}
    with pytest.raises(ConfigError, match="do not fit the 33554432 bytes"):
        load(None, {}, options)
    assert load(None, {}, {**options, "huge_pages": True}).config.huge_pages


def test_tls_is_all_or_nothing(tmp_path: Path) -> None:
    authority = tmp_path / "ca.pem"
    authority.write_text("x")
    said = complaints(tls_ca=str(authority))
    assert set(said) == {"tls_cert", "tls_key"}


@pytest.mark.parametrize(
    ("key", "content", "mode", "said"),
    [
        ("cluster_secret_file", b"x" * 32, 0o644, "chmod 600"),
        ("cluster_secret_file", b"x" * 15, 0o600, "16 are the least"),
        ("cluster_secret_file", b"x" * 4097, 0o600, "more than 4096"),
        ("cluster_secret_file", b"\n" * 20, 0o600, "0 bytes without the white space"),
        ("cluster_secret_file", b"fifteen letters   \n", 0o600, "15 bytes without the white space"),
        ("cold_key_file", b"x" * 32, 0o604, "chmod 600"),
        ("cold_key_file", b"x" * 31 + b"\n", 0o600, "32 are the least"),
        ("cold_key_file", b"x" * 40 + b"\nnext " + b"y" * 40, 0o600, "several lines"),
    ],
)
def test_a_weak_or_open_secret_is_refused(
    tmp_path: Path, key: str, content: bytes, mode: int, said: str
) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(content)
    secret.chmod(mode)
    assert said in complaints(cold_store="s3://bucket/prefix", **{key: str(secret)})[key]


def test_settings_of_the_object_store_that_do_nothing_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = tmp_path / "key"
    key.write_bytes(b"x" * 32)
    key.chmod(0o600)
    assert "cold_store is not" in complaints(cold_key_file=str(key))["cold_key_file"]
    assert "has no price" in complaints(cold_prices=" , ")["cold_prices"]
    assert not complaints(cold_store="s3://bucket/prefix", cold_key_file=str(key))
    monkeypatch.setattr(checks, "find_spec", lambda name: None)
    assert "peercached[cold]" in complaints(cold_store="s3://bucket/prefix")["cold_store"]


def test_a_good_secret_passes_and_is_not_in_the_configuration(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"correct horse battery")
    secret.chmod(0o640)
    effective = load(None, {}, {"cluster_secret_file": str(secret)})
    assert "correct horse" not in repr(effective)


@pytest.mark.parametrize("path", ["/nonexistent/secret", "/dev/null", "/tmp"])
def test_unreadable_secret_file_is_refused_by_path(path: str) -> None:
    assert path in complaints(cluster_secret_file=path)["cluster_secret_file"]


def test_host_name_unfit_as_node_id_asks_to_set_node_id(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "a host!")
    assert "set node_id" in complaints()["node_id"]
    assert not complaints(node_id="a")


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("socket_group", "no-such-group", "there is no such group"),
        ("worker_users", ["root", "no-such-user"], "'no-such-user', and there is no such user"),
        ("worker_groups", ["4294967295"], "there is no such group"),
    ],
)
def test_accounts_must_exist(key: str, value: object, text: str) -> None:
    assert text in complaints(**{key: value})[key]


def test_accounts_may_be_names_or_numbers() -> None:
    assert complaints(socket_group="0", worker_users=["root", "4711"], worker_groups=["0"]) == {}
