"""`peercachectl vllm-config`: a shell accepts the launch option as printed."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from harness.fake_daemon import FakeSource, serving

from peercached.cli.ctl import main


def printed(*arguments: str) -> Result:
    result = CliRunner().invoke(main, [*arguments])
    assert result.exit_code == 0, result.output
    return result


def transfer_config(result: Result) -> dict[str, Any]:
    """The option's value as vLLM gets it, after bash has parsed the line."""
    command = f"printf '%s\\0' {result.stdout}"
    words = subprocess.run(["bash", "-c", command], capture_output=True, check=True).stdout
    name, value, _ = words.decode().split("\0")
    assert name == "--kv-transfer-config"
    config: dict[str, Any] = json.loads(value)
    return config


def test_the_option_survives_the_shell_and_names_the_daemons_socket(tmp_path: Path) -> None:
    source = FakeSource()
    source.document = {"node": {"id": "a", "socket_path": "/run/it's here/d.sock"}}
    admin_path = tmp_path / "d.admin.sock"
    with serving(admin_path, source):
        result = printed("--admin-socket", str(admin_path), "vllm-config")
    assert result.stderr == ""
    assert transfer_config(result) == {
        "kv_connector": "OffloadingConnector",
        "kv_role": "kv_both",
        "kv_connector_extra_config": {
            "spec_name": "TieringOffloadingSpec",
            "cpu_bytes_to_use": 8 << 30,
            "secondary_tiers": [
                {
                    "type": "PeerCacheTier",
                    "module_path": "peercache_client.vllm",
                    "socket_path": "/run/it's here/d.sock",
                }
            ],
        },
    }


def test_given_options_are_passed_on_and_json_is_the_value_alone(tmp_path: Path) -> None:
    options = ["--tenant", 'a "quoted" one', "--blocks-per-chunk", "4", "--host-memory", "64GiB"]
    socket = str(tmp_path / "d.sock")
    line = printed("--socket", socket, "vllm-config", *options)
    assert "vLLM starts all the same" in line.stderr
    extra = transfer_config(line)["kv_connector_extra_config"]
    assert (extra["blocks_per_chunk"], extra["cpu_bytes_to_use"]) == (4, 64 << 30)
    assert extra["secondary_tiers"][0]["tenant"] == 'a "quoted" one'
    alone = printed("--socket", socket, "vllm-config", *options, "--json")
    assert json.loads(alone.stdout) == transfer_config(line)


@pytest.mark.parametrize(
    "options",
    [["--tenant", "a\nb"], ["--host-memory", "much"], ["--blocks-per-chunk", "0"]],
    ids=str,
)
def test_values_that_vllm_would_refuse_are_wrong_usage(tmp_path: Path, options: list[str]) -> None:
    arguments = ["--socket", str(tmp_path / "d.sock"), "vllm-config", *options]
    refused = CliRunner().invoke(main, arguments)
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert options[0] in refused.stderr
