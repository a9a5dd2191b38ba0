"""Impossible combinations of values, each with a remedy. Single values were checked before."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from peercached.config.cluster_secret import SecretProblem, read_secret
from peercached.config.cold_key import read_cold_key
from peercached.config.memory import besides_bytes
from peercached.config.paths import SOCKET_PATH_BYTES_MAX
from peercached.config.private import open_to_others, remedy
from peercached.config.problem import Problem
from peercached.config.schema import Config
from peercached.config.values import format_size, group_number, split_address, user_number
from peercached.names import is_literal, is_loopback

_TTL_HEARTBEATS_MIN = 3


def impossible(config: Config, memory_bytes: int | None) -> list[Problem]:
    """All problems. `memory_bytes`: how much memory this process may use, None if unknown."""
    problems: list[Problem] = []

    def bad(key: str, what: str, remedy: str) -> None:
        problems.append(Problem(key, what, remedy, value=str(getattr(config, key))))

    _check_cluster(config, bad)
    _check_sockets(config, bad)
    _check_files(config, bad)
    _check_accounts(config, bad)
    _check_pool_file(config, bad)
    _check_rdma(config, bad)
    _check_disk(config, bad)
    _check_store(config, bad)
    besides = besides_bytes(config)
    if memory_bytes is not None and config.pool_size + besides > memory_bytes:
        bad(
            "pool_size",
            f"{format_size(config.pool_size)}, and the {format_size(besides)} that the "
            f"daemon needs besides, do not fit the {memory_bytes} bytes of memory that this "
            "process may use",
            f"set pool_size to at most {max(memory_bytes - besides, 0) >> 20}MiB and leave "
            "room for the engines, or raise the memory limit of the container or unit (its cgroup)",
        )
    return problems


_Bad = Callable[[str, str, str], None]


def _check_cluster(config: Config, bad: _Bad) -> None:
    if config.role == "memory" and not config.clustered:
        bad(
            "role",
            "lends memory to other nodes, but this node is on its own",
            "set discovery_addr to the heads of the cluster",
        )
    if config.role == "memory" and config.gpu != "off":
        bad("gpu", f'is "{config.gpu}", but a node of role "memory" has no workers', "remove it")
    if config.write_policy != "local" and not config.clustered:
        bad(
            "write_policy",
            "sends pages to other nodes, but this node is on its own",
            "set discovery_addr to the heads of the cluster, or remove write_policy",
        )
    if config.membership == "etcd" and not config.etcd_endpoints:
        bad("etcd_endpoints", "is empty, but membership is etcd", "name the members of etcd")
    if config.membership == "etcd" and config.discovery_addr:
        bad("discovery_addr", "names heads, but membership is etcd", "remove it")
    if config.membership == "embedded" and config.etcd_endpoints:
        bad(
            "etcd_endpoints",
            "names members of etcd, but membership is embedded",
            'remove it, or set membership to "etcd"',
        )
    _check_ports(config, bad)
    shortest = _TTL_HEARTBEATS_MIN * config.heartbeat_interval_s
    # The margin allows for rounding: 3 x 0.1 is slightly more than 0.3.
    if config.member_ttl_s < shortest - 1e-9:
        bad(
            "member_ttl_s",
            f"is below {_TTL_HEARTBEATS_MIN} x heartbeat_interval_s "
            f"({config.heartbeat_interval_s:g}), so that one late heartbeat removes a live node",
            f"set member_ttl_s to at least {shortest:g}, or heartbeat_interval_s to at most "
            f"{config.member_ttl_s / _TTL_HEARTBEATS_MIN:g}",
        )
    if config.host == "localhost" or (is_literal(config.host) and is_loopback(config.host)):
        hosts = {head: split_address(head)[0] for head in config.discovery_addr}
        far = [head for head, host in hosts.items() if is_literal(host) and not is_loopback(host)]
        if far:
            bad(
                "host",
                f"is an address that only this host can reach, but the head {far[0]} is elsewhere",
                'set host to an address that peers can reach, or to "auto"',
            )


def _check_ports(config: Config, bad: _Bad) -> None:
    """Each port has its own number, also if `metrics_host` is another address than `host`."""
    taken: dict[int, str] = {}
    for key in ("meta_port", "data_port", "metrics_port", "router_port", "kv_events_port"):
        first = getattr(config, key)
        if not first or (key == "metrics_port" and not config.metrics_enabled):
            continue
        # Replays of events have the next port.
        for port in (first, first + 1) if key == "kv_events_port" else (first,):
            if port in taken:
                what = (
                    f"is {taken[port]} too"
                    if port == first
                    else f"needs the next port, too, and that is {taken[port]}"
                )
                bad(key, what, "give the two ports different numbers")
            taken[port] = key


def _check_rdma(config: Config, bad: _Bad) -> None:
    if config.protocol == "tcp" and config.device_names:
        bad(
            "device_names",
            "names RDMA devices, but protocol is tcp",
            'remove it, or set protocol to "rdma" or "auto"',
        )


def _check_disk(config: Config, bad: _Bad) -> None:
    if not config.disk_enabled:
        if config.disk_path:
            bad("disk_path", "is set, but disk_enabled is false", "set disk_enabled, or remove it")
        return
    if not config.disk_path.startswith("/"):
        bad(
            "disk_path",
            "is no absolute path, but disk_enabled is true",
            "name a folder on a local disk",
        )
    elif not Path(config.disk_path).parent.is_dir():
        bad(
            "disk_path",
            "is in a folder that does not exist",
            f"make {Path(config.disk_path).parent} (is its file system mounted?), or name another",
        )


def _check_store(config: Config, bad: _Bad) -> None:
    if config.cold_store and find_spec("obstore") is None:
        bad(
            "cold_store",
            "needs the Python package obstore",
            "install peercached[cold] into the daemon's environment, or remove it",
        )
    if config.cold_key_file and not config.cold_store:
        bad("cold_key_file", "is set, but cold_store is not", "set cold_store, or remove it")


def _check_sockets(config: Config, bad: _Bad) -> None:
    for key in ("socket_path", "admin_socket"):
        path = str(getattr(config, key))
        if not path.startswith("/"):
            bad(key, "is not an absolute path", "begin it with /")
        elif "\0" in path:
            bad(key, "has a zero byte", "give a path without one")
        elif len(os.fsencode(path)) > SOCKET_PATH_BYTES_MAX:
            bad(
                key,
                f"is {len(os.fsencode(path))} bytes long; a Unix socket's path has at most "
                f"{SOCKET_PATH_BYTES_MAX}",
                "choose a folder with a shorter name",
            )
    folder = Path(config.admin_socket).parent
    if config.socket_path == config.admin_socket:
        bad("admin_socket", "is socket_path too", "give the two sockets different paths")
    elif mode := open_to_others(folder):
        bad(
            "admin_socket",
            f"is in a folder that is open to other users (mode {mode:04o})",
            f"name a folder of its own, which the daemon makes; or chmod 700 {folder}",
        )


def _check_accounts(config: Config, bad: _Bad) -> None:
    groups = [config.socket_group] if config.socket_group else []
    for key, names, number in (
        ("socket_group", groups, group_number),
        ("worker_users", config.worker_users, user_number),
        ("worker_groups", config.worker_groups, group_number),
    ):
        for name in names:
            try:
                number(name)
            except ValueError as error:
                bad(key, str(error), "name one of this host (`getent passwd`, `getent group`)")


def _check_files(config: Config, bad: _Bad) -> None:
    tls = ("tls_ca", "tls_cert", "tls_key")
    missing = [key for key in tls if not getattr(config, key)]
    if missing and len(missing) < len(tls):
        for key in missing:
            bad(key, "is not set, but another tls_ key is", "set all three of them, or none")
    if config.state_dir and not os.access(config.state_dir, os.W_OK | os.X_OK):
        bad(
            "state_dir",
            "is no folder that this user may write",
            f"make it (install -d -m 750 {config.state_dir}), or name another one",
        )
    for key in tls:
        if getattr(config, key):
            _check_file(key, Path(getattr(config, key)), bad, private=key == "tls_key")
    if (
        config.kv_events_port
        and config.kv_events_auth == "curve"
        and not config.cluster_secret_file
    ):
        bad(
            "kv_events_auth",
            "is curve. Its keys come from the cluster secret, and there is none",
            'set cluster_secret_file, or kv_events_auth = "none"',
        )
    for key, read in (("cluster_secret_file", read_secret), ("cold_key_file", read_cold_key)):
        if path := getattr(config, key):
            try:
                read(Path(path))
            except SecretProblem as problem:
                bad(key, str(problem), problem.remedy)


def _check_pool_file(config: Config, bad: _Bad) -> None:
    if not config.pool_file:
        return
    folder = Path(config.pool_file).parent
    if not config.pool_file.startswith("/"):
        bad("pool_file", "is not an absolute path", "begin it with /")
    elif not os.access(folder, os.W_OK | os.X_OK):
        bad(
            "pool_file",
            "is in no folder that this user may write",
            f"make it (install -d -m 700 {folder}), or name a file in another one",
        )
    if not config.state_dir:
        bad(
            "pool_file",
            "needs state_dir, where it is written down which namespaces were cleared",
            "set state_dir to a folder that this user may write",
        )


def _check_file(key: str, path: Path, bad: _Bad, *, private: bool) -> None:
    """Adds a problem if the daemon could not use the file."""
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
    except OSError as error:
        bad(
            key, f"cannot be read ({error.strerror})", "name a file that the daemon's user may read"
        )
        return
    if not stat.S_ISREG(status.st_mode):
        bad(key, "is not a file", "name a file")
        return
    # A secret that every local user can read authenticates nobody.
    if private and status.st_mode & 0o007:
        bad(key, f"is open to every user (mode {status.st_mode & 0o777:04o})", remedy(path))
