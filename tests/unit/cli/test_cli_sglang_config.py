"""`peercachectl sglang-config`: a shell accepts the launch line as printed."""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from harness.fake_daemon import FakeSource, serving

from peercached.cli.ctl import main


def printed(*arguments: str) -> Result:
    result = CliRunner().invoke(main, [*arguments])
    assert result.exit_code == 0, result.output
    return result


def extra_config(result: Result) -> dict[str, object]:
    """The extra config as SGLang gets it, after bash has parsed the line."""
    command = f"printf '%s\\0' {result.stdout}"
    words = subprocess.run(["bash", "-c", command], capture_output=True, check=True).stdout
    given = words.decode().split("\0")
    assert given[:3] == [
        "--hicache-storage-backend",
        "dynamic",
        "--hicache-storage-backend-extra-config",
    ]
    config: dict[str, object] = json.loads(given[3])
    return config


def test_the_line_survives_the_shell_and_names_the_daemons_socket(tmp_path: Path) -> None:
    source = FakeSource()
    source.document = {"node": {"id": "a", "socket_path": "/run/it's here/d.sock"}}
    admin_path = tmp_path / "d.admin.sock"
    with serving(admin_path, source):
        result = printed("--admin-socket", str(admin_path), "sglang-config")
    assert result.stderr == ""
    assert extra_config(result) == {
        "backend_name": "peercache",
        "module_path": "peercache_client.sglang",
        "class_name": "PeerCacheStorage",
        "interface_v1": 1,
        "allocator": "shm",
        "hicache_storage_pass_prefix_keys": True,
        "socket_path": "/run/it's here/d.sock",
    }


def test_given_options_are_passed_on_and_others_left_out(tmp_path: Path) -> None:
    options = ["--tenant", 'a "quoted" one', "--tp-lcm-size", "4", "--numa-node", "0"]
    socket = str(tmp_path / "d.sock")
    result = printed("--socket", socket, "sglang-config", *options)
    config = extra_config(result)
    assert (config["tenant"], config["tp_lcm_size"]) == ('a "quoted" one', 4)
    assert (config["numa_node"], config["socket_path"]) == (0, socket)
    assert not {"namespace", "model_revision", "huge_pages"} & set(config)


def test_line_without_a_daemon_is_right_and_warns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = printed("--socket", "d.sock", "sglang-config")
    assert extra_config(result)["socket_path"] == str(tmp_path / "d.sock")
    assert "SGLang starts all the same" in result.stderr


def test_json_is_the_extra_config_alone(tmp_path: Path) -> None:
    socket = str(tmp_path / "d.sock")
    line, alone = (printed("--socket", socket, "sglang-config", *form) for form in ([], ["--json"]))
    assert json.loads(alone.stdout) == extra_config(line)
    assert shlex.split(line.stdout)


# --- the external linker ----------------------------------------------------------------------


def test_the_line_for_a_linker_has_the_config_that_json_prints(tmp_path: Path) -> None:
    command = ["--socket", str(tmp_path / "it's.sock"), "sglang-config", "--linker"]
    line, alone = (
        printed(*command, "--tenant", 'a "quoted" one', *form) for form in ([], ["--json"])
    )
    *options, config = shlex.split(line.stdout.replace("\\\n", ""))
    assert options == [
        "--enable-unified-cache-external-linker",
        "--unified-cache-external-linker-backend",
        "dynamic",
        "--unified-cache-external-linker-config",
    ]
    assert json.loads(config) == json.loads(alone.stdout)
    assert json.loads(config) == {
        "linker": "PeerCacheLinker",
        "linker_module_path": "peercache_client.sglang.linker",
        "linker_extra_config": {
            "socket_path": str(tmp_path / "it's.sock"),
            "tenant": 'a "quoted" one',
        },
    }


def test_a_linker_may_leave_the_copies_to_the_daemon(tmp_path: Path) -> None:
    command = ["--socket", str(tmp_path / "a.sock"), "sglang-config", "--direct"]
    config = json.loads(printed(*command, "--linker", "--json").stdout)
    assert config["linker_extra_config"]["direct"] is True
    refused = CliRunner().invoke(main, command)
    assert refused.exit_code == 2
    assert "--direct is for --linker" in refused.stderr


@pytest.mark.parametrize(
    ("option", "value"), [("--tp-lcm-size", "4"), ("--huge-pages", "2MiB"), ("--numa-node", "0")]
)
def test_options_of_host_pools_are_wrong_usage_for_a_linker(
    tmp_path: Path, option: str, value: str
) -> None:
    arguments = ["--socket", str(tmp_path / "d.sock"), "sglang-config", "--linker", option, value]
    refused = CliRunner().invoke(main, arguments)
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert f"{option} is of SGLang's host pools" in refused.stderr


# --- text that would break SGLang's start -----------------------------------------------------


@pytest.mark.parametrize("form", [[], ["--json"]], ids=["line", "json"])
@pytest.mark.parametrize("option", ["--tenant", "--namespace", "--model-revision"])
@pytest.mark.parametrize("value", ["a\nb", "a\tb", "a\x1b[1m", "\x7f", "\udc80"], ids=repr)
def test_text_that_is_not_printable_is_wrong_usage(
    tmp_path: Path, option: str, value: str, form: list[str]
) -> None:
    arguments = ["--socket", str(tmp_path / "d.sock"), "sglang-config", option, value, *form]
    refused = CliRunner().invoke(main, arguments)
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert f"{option} is {value!r}: printable text" in refused.stderr


def test_a_socket_path_that_is_not_printable_is_wrong_usage(tmp_path: Path) -> None:
    given = str(tmp_path / "d\n.sock")
    refused = CliRunner().invoke(main, ["--socket", given, "sglang-config"])
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert f"socket_path is {given!r}: printable text" in refused.stderr


def test_a_daemons_socket_path_that_is_not_printable_is_refused(tmp_path: Path) -> None:
    source = FakeSource()
    source.document = {"node": {"id": "a", "socket_path": "/run/a\nb.sock"}}
    admin_path = tmp_path / "d.admin.sock"
    with serving(admin_path, source):
        refused = CliRunner().invoke(main, ["--admin-socket", str(admin_path), "sglang-config"])
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert r"socket_path is '/run/a\nb.sock'" in refused.stderr
