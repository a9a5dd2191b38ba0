"""deploy/compose: what it mounts is there, and Prometheus takes its configuration."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

COMPOSE = Path(__file__).parents[2] / "deploy" / "compose"


def document(name: str) -> Any:
    return yaml.safe_load((COMPOSE / name).read_text())


def mounts() -> dict[str, Path]:
    """By the path in the container: the file of ours, for bind mounts."""
    found = {}
    for service in document("compose.yaml")["services"].values():
        for volume in service["volumes"]:
            source, inside, *_ = volume.split(":")
            if source.startswith("."):
                found[inside] = (COMPOSE / source).resolve()
    return found


def test_every_mounted_file_is_there() -> None:
    for inside, file in mounts().items():
        # The operator makes this one from the example.
        there = COMPOSE / "targets.example.json" if file.name == "targets.json" else file
        assert there.is_file(), inside
    assert len(mounts()) == 6


def test_promtool_takes_the_configuration(tmp_path: Path) -> None:
    if not shutil.which("promtool"):
        pytest.skip("no promtool: apt-get install prometheus")
    for inside, file in mounts().items():
        if inside.startswith("/etc/prometheus/") and file.exists():
            shutil.copy(file, tmp_path)
    shutil.copy(COMPOSE / "targets.example.json", tmp_path / "targets.json")
    done = subprocess.run(
        ["promtool", "check", "config", str(tmp_path / "prometheus.yml")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "rules found" in done.stdout


def test_the_example_has_targets_of_the_default_port() -> None:
    [group] = json.loads((COMPOSE / "targets.example.json").read_text())
    assert all(target.endswith(":31997") for target in group["targets"])


def test_the_board_finds_its_source_and_grafana_finds_the_board() -> None:
    board = json.loads(mounts()["/var/lib/grafana/boards/peercached.json"].read_text())
    kinds = [one["query"] for one in board["templating"]["list"] if one["type"] == "datasource"]
    [source] = document("grafana/datasource.yaml")["datasources"]
    assert kinds == [source["type"]]
    [provider] = document("grafana/boards.yaml")["providers"]
    assert "/var/lib/grafana/boards/peercached.json".startswith(provider["options"]["path"])
    server = document("compose.yaml")["services"]["grafana"]["environment"]["GF_SERVER_HTTP_ADDR"]
    assert server == "127.0.0.1", "anonymous viewers only from this host"
