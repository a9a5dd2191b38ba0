"""`peercachectl config --from-peercache`: what PeerCache's users start with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from peercached.cli.ctl import main
from peercached.config import load
from peercached.config.from_peercache import translate

# As in the documentation of PeerCache, in SGLang's extra config.
THEIRS = {
    "backend_name": "peercache",
    "module_path": "peercache.store",
    "class_name": "PeerCacheStore",
    "discovery_addr": "10.0.0.1:31998,10.0.0.2:31998",
    "mode": "p2p",
    "protocol": "rdma",
    "device_names": "mlx5_0, mlx5_1",
    "gid_index": 3,
    "global_segment_size": "1gb",
    "heartbeat_interval": 2.0,
    "member_ttl": 6.0,
    "disk_enabled": False,
    "colour": "red",
}


def run(tmp_path: Path, theirs: str) -> Result:
    file = tmp_path / "theirs.json"
    file.write_text(theirs)
    return CliRunner().invoke(main, ["config", "--from-peercache", str(file)])


def test_the_translation_is_a_configuration_file_that_works(tmp_path: Path) -> None:
    result = run(tmp_path, json.dumps(THEIRS))
    assert result.exit_code == 0, result.output
    file = tmp_path / "peercached.toml"
    file.write_text(result.output)
    config = load(file, {}, {"host": "10.0.0.1", "node_id": "a"}).config
    assert config.discovery_addr == ["10.0.0.1:31998", "10.0.0.2:31998"]
    assert config.pool_size == 1 << 30
    assert config.protocol == "auto"
    assert config.device_names == ["mlx5_0", "mlx5_1"]
    assert (config.heartbeat_interval_s, config.member_ttl_s) == (2.0, 6.0)
    assert not config.disk_enabled
    for said in ("mode: every node", "class_name: for SGLang", "colour: not a key", "gid_index: "):
        assert f"#   {said}" in result.output


def test_defaults_that_are_on_there_are_written_down() -> None:
    made = translate('{"discovery_addr": "a:1", "device_name": "mlx5_2", "ib_port": 2}')
    assert made.values["disk_enabled"] is True
    assert made.values["disk_path"] == "/data/peercache/"
    assert made.values["device_names"] == ["mlx5_2:2"]
    assert "# On by default in PeerCache." in made.toml()


@pytest.mark.parametrize(
    ("theirs", "said"),
    [
        ("{", "not JSON"),
        ("[1]", "not a JSON object"),
        ('{"global_segment_size": "much"}', "pool_size = 'much'"),
        ('{"protocol": "carrier pigeon"}', "protocol = 'carrier pigeon'"),
    ],
)
def test_untranslatable_keys_are_named(tmp_path: Path, theirs: str, said: str) -> None:
    result = run(tmp_path, theirs)
    assert result.exit_code == 2
    assert said in result.output
