"""Where values come from, which source wins, and what the errors say."""

from __future__ import annotations

import grp
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from peercached.config import Config, ConfigError, load
from peercached.config.keys import KEYS
from peercached.config.own_host import NoOwnHost, own_host


def problems(
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
    options: Mapping[str, Any] | None = None,
) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(file, environment, options)
    return [str(problem) for problem in caught.value.problems]


def write(folder: Path, text: str) -> Path:
    file = folder / "p.toml"
    file.write_text(text)
    return file


def test_defaults_start_a_single_node_without_any_file() -> None:
    effective = load()
    config = effective.config
    assert config.node_id == socket.gethostname()
    assert own_host(config)[0] == "127.0.0.1"
    assert config.discovery_addr == []
    assert (config.meta_port, config.data_port, config.pool_size) == (31998, 31999, 1 << 30)
    assert config.socket_path.endswith("/peercached.sock")
    assert config.admin_socket.endswith("/peercached-admin/peercached.sock")
    assert set(effective.sources) == set(Config.model_fields)
    assert all(source.startswith("default") for source in effective.sources.values())


def test_the_workers_socket_is_given_to_their_group_by_a_daemon_that_may(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    workers = grp.struct_group(("peercached-workers", "x", 701, []))

    def look_up(name: str) -> grp.struct_group:
        return {"peercached-workers": workers}[name]

    assert load().config.socket_group == "", "there is no such group"
    monkeypatch.setattr(grp, "getgrnam", look_up)
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    monkeypatch.setattr(os, "getgroups", lambda: [4711, 701])
    assert load().config.socket_group == "peercached-workers"
    assert load(options={"socket_group": "0"}).config.socket_group == "0"
    monkeypatch.setattr(os, "getgroups", lambda: [4711])
    assert load().config.socket_group == "", "a daemon of somebody who tries it"


def test_later_sources_win_and_every_value_knows_its_own(tmp_path: Path) -> None:
    file = write(
        tmp_path, '# ours\nmax_masters = 10\npool_size = "1g"\nmeta_port = 1\nworkers_max = 3\n'
    )
    environment = {"PEERCACHED_POOL_SIZE": "2g", "PEERCACHED_META_PORT": "2", "HOME": "/"}
    effective = load(file, environment, {"meta_port": "3"})
    config, sources = effective.config, effective.sources
    assert (config.max_masters, config.pool_size, config.meta_port) == (10, 2 << 30, 3)
    assert sources["max_masters"] == f"file {file}:2"
    assert sources["pool_size"] == "environment PEERCACHED_POOL_SIZE"
    assert sources["meta_port"] == "option --meta-port"
    assert sources["data_port"] == "default"


def test_heads_are_a_list_or_a_comma_text(tmp_path: Path) -> None:
    file = write(tmp_path, 'discovery_addr = ["127.0.0.1:1", "127.0.0.2:2"]')
    heads = ["127.0.0.1:1", "127.0.0.2:2"]
    assert load(file).config.discovery_addr == heads
    text = {"PEERCACHED_DISCOVERY_ADDR": "127.0.0.1:1, 127.0.0.2:2,"}
    assert load(None, text).config.discovery_addr == heads


def test_host_is_the_address_that_routes_to_the_first_head() -> None:
    address, how = own_host(load(None, {}, {"discovery_addr": "127.0.0.1:5"}).config)
    assert address == "127.0.0.1"
    assert "127.0.0.1:5" in how


def test_unresolvable_head_name_asks_to_set_host() -> None:
    with pytest.raises(NoOwnHost) as caught:
        own_host(load(None, {}, {"discovery_addr": "no-such-head.invalid:5"}).config)
    assert "no-such-head.invalid:5" in str(caught.value)
    assert "set host" in str(caught.value)


def test_an_unknown_key_names_the_nearest(tmp_path: Path) -> None:
    file = write(tmp_path, "\npool_sise = 3\n")
    (problem,) = problems(file)
    assert f"pool_sise = 3 (file {file}:2)" in problem
    assert "did you mean pool_size?" in problem


def test_dashes_in_a_file_are_recognised(tmp_path: Path) -> None:
    (problem,) = problems(write(tmp_path, "meta-port = 3"))
    assert "did you mean meta_port?" in problem


def test_an_unknown_variable_names_the_nearest() -> None:
    (problem,) = problems(environment={"PEERCACHED_DATA_PROT": "3"})
    assert "PEERCACHED_DATA_PROT = '3'" in problem
    assert "did you mean PEERCACHED_DATA_PORT?" in problem


def test_keys_of_peercache_are_refused_with_a_hint(tmp_path: Path) -> None:
    first, second = problems(write(tmp_path, 'global_segment_size = "4gb"\nmode = "master"'))
    assert "pool_size" in first
    assert "every node is a peer" in second


def test_variables_that_kubernetes_makes_of_a_service_are_not_ours() -> None:
    load(
        None,
        {
            "PEERCACHED_SERVICE_HOST": "10.0.0.1",
            "PEERCACHED_SERVICE_PORT": "31998",
            "PEERCACHED_SERVICE_PORT_META": "31998",
            "PEERCACHED_PORT": "tcp://10.0.0.1:31998",
            "PEERCACHED_PORT_31998_TCP": "tcp://10.0.0.1:31998",
            "PEERCACHED_PORT_31998_TCP_ADDR": "10.0.0.1",
        },
    )


def test_config_file_variable_is_not_an_unknown_key() -> None:
    load(None, {"PEERCACHED_CONFIG": "/etc/p.toml"})


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("pool_size", "8gibi", "512MiB"),
        ("pool_size", "1023k", "from 1MiB"),
        ("meta_port", "70000", "from 1 to 65535"),
        ("meta_port", "x", "whole number"),
        ("verify", "none", '"checksum" or "header"'),
        ("huge_pages", "perhaps", "true or false"),
        ("directory_replicas", "9", "from 1 to 8"),
        ("heartbeat_interval_s", "nan", "number"),
        ("discovery_addr", "head", "host:port"),
        ("socket_mode", "999", '"0660"'),
        ("node_id", "a/b", "letters"),
        ("host", "0.0.0.0", "auto"),
        ("faults", "corupt=1", "corrupt"),
        ("log_level", "loud", '"debug"'),
    ],
)
def test_a_bad_value_names_key_value_source_and_remedy(key: str, value: str, said: str) -> None:
    (problem,) = problems(environment={KEYS[key].variable: value})
    assert problem.startswith(f"{key} = {value!r} (environment {KEYS[key].variable}): ")
    _, _, remedy = problem.partition("; ")
    assert said in problem
    assert remedy


@pytest.mark.parametrize(
    "text", ["max_masters = true", "verify = 1", 'node_id = ["a"]', "max_masters = 1.5"]
)
def test_values_of_another_type_are_not_converted(tmp_path: Path, text: str) -> None:
    assert len(problems(write(tmp_path, text))) == 1


def test_a_boolean_is_true_or_false_in_a_file_without_quotes(tmp_path: Path) -> None:
    for value in ('"yes"', '"true"', '"false"', "1", "0.0"):
        (problem,) = problems(write(tmp_path, f"huge_pages = {value}"))
        assert "is neither true nor false; give true or false" in problem
    variable = KEYS["huge_pages"].variable
    assert load(None, {variable: "true"}).config.huge_pages is True
    assert load(None, {variable: "false"}).config.huge_pages is False
    for text in ("yes", "1", "True", ""):
        assert "is neither true nor false" in problems(environment={variable: text})[0]


def test_all_configuration_problems_are_reported_together(tmp_path: Path) -> None:
    file = write(tmp_path, "max_masters = 0\nnonsense = 1\n[pool]\nsize = 1\n")
    told = problems(file, {"PEERCACHED_META_PORT": "x"})
    assert len(told) == 4
    assert any("[pool]" in problem and "top level" in problem for problem in told)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"max_masters 3", "line 1"),
        (b"max_masters = 3\nmax_masters = 4", "each key once"),
        (b"\xff = 1", "UTF-8"),
    ],
)
def test_toml_error_names_the_file_and_the_cause(tmp_path: Path, content: bytes, said: str) -> None:
    file = tmp_path / "p.toml"
    file.write_bytes(content)
    (problem,) = problems(file)
    assert str(file) in problem
    assert said in problem


def test_a_missing_file_is_an_error_not_the_defaults(tmp_path: Path) -> None:
    (problem,) = problems(tmp_path / "absent.toml")
    assert "absent.toml" in problem
    (problem,) = problems(tmp_path)
    assert "cannot be read" in problem


def test_the_configuration_cannot_be_changed_afterwards() -> None:
    with pytest.raises(ValueError, match="frozen"):
        load().config.max_masters = 3


def test_addresses_with_a_password_are_refused_and_not_shown(tmp_path: Path) -> None:
    for key, value in (
        ("otlp_endpoint", "http://tenant:hunter2@collector:4318"),
        ("otlp_endpoint", "http://hunter2@collector:4318/v1/traces?x"),
        ("discovery_addr", "tenant:hunter2@10.0.0.1:31998"),
        ("etcd_endpoints", "https://tenant:hunter2@10.0.0.1:2379"),
        ("ottlp_endpoint", "http://tenant:hunter2@collector:4318"),
    ):
        found = problems(write(tmp_path, f'{key} = "{value}"'))
        assert key in found[0]
        assert "hunter2" not in "".join(found)
