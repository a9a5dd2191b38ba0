"""An operator at one node of a real cluster inspects and controls other nodes through it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from harness.cluster import Daemon
from harness.ctl import ctl
from harness.fixtures import MakeCluster
from harness.pages import keys_of
from harness.secret_file import secret_file
from harness.waiting import eventually

from peercached.cli import exits

KEYS = keys_of("page", 40)


@pytest.fixture(autouse=True)
def _no_variables_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("PEERCACHED_")]:
        monkeypatch.delenv(name)


def document(daemon: Daemon, *arguments: str) -> dict[str, object]:
    result = ctl(daemon, *arguments, "--json")
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    found = json.loads(result.stdout)
    assert isinstance(found, dict)
    return found


def test_a_get_is_followed_through_lookup_and_read(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(3, directory_replicas=1, directory_copies=0)
    assert all(cluster[1].attach().set(KEYS))
    seen = set()
    for key in KEYS:
        found = document(cluster[0], "trace", key.decode(), "-n", "test")
        assert found["outcome"] == "ok"
        assert found["length"] == 65_536
        steps = found["steps"]
        assert isinstance(steps, list)
        names = [step["name"] for step in steps]
        assert names[:2] == ["pool", "copies"]
        assert names[-1] == "read"
        assert (steps[-1]["node_id"], steps[-1]["transport"]) == ("b", "tcp")
        assert steps[-1]["took_us"] > 0
        outer = [step for step in steps if not step["within"]]
        assert sum(step["took_us"] for step in outer) <= found["total_us"]
        assert [step["at_us"] for step in outer] == sorted(step["at_us"] for step in outer)
        owner = [step for step in steps if step["name"] == "owner"]
        seen.update({step["node_id"] for step in owner} or {"a"})
    assert seen == {"a", "b", "c"}, "each owner was asked for its part"
    # The second time the location is cached, so no owner is asked.
    again = document(cluster[0], "trace", KEYS[0].decode(), "-n", "test")
    steps = [s["name"] for s in again["steps"]]  # type: ignore[attr-defined]
    assert "owners" not in steps
    local = document(cluster[1], "trace", KEYS[0].decode(), "-n", "test")
    assert [s["name"] for s in local["steps"]] == ["pool", "copy"]  # type: ignore[attr-defined]
    assert ctl(cluster[0], "trace", "no such key").exit_code == exits.ABSENT
    # The same from another node.
    assert document(cluster[2], "--node", "b", "trace", KEYS[0].decode(), "-n", "test") | {
        "total_us": 0, "steps": 0
    } == local | {"total_us": 0, "steps": 0}  # fmt: skip


def test_evicted_pages_are_gone_here_and_from_the_directory(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(2)
    assert all(cluster[1].attach().set(KEYS))
    reader = cluster[0].attach()
    key = KEYS[3].decode()
    found = document(cluster[1], "evict", key, "-n", "test")
    assert found == {"node_id": "b", "pages": 1, "bytes": 65_536}
    assert ctl(cluster[1], "evict", key, "-n", "test").exit_code == exits.ABSENT
    statuses = reader.get(KEYS)
    assert [bool(status) for status in statuses] == [k != KEYS[3] for k in KEYS]
    found = document(cluster[1], "evict", "--bytes", "640KiB")
    assert found == {"node_id": "b", "pages": 10, "bytes": 10 * 65_536}
    assert sum(map(bool, reader.get(KEYS))) == len(KEYS) - 11
    assert document(cluster[1], "evict", "--all", "--yes")["pages"] == len(KEYS) - 11
    assert not any(reader.get(KEYS))


def test_another_node_is_steered_only_by_members_that_are_known(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    trusted = make_cluster(2, cluster_secret_file=secret_file(tmp_path, os.urandom(32)))
    assert document(trusted[0], "--node", "b", "status")["node"]["id"] == "b"  # type: ignore[index]
    assert ctl(trusted[0], "--node", "b", "undrain").exit_code == exits.OK
    said = "admin command undrain, requested by an operator at a"
    eventually(lambda: said in trusted[1].log_text(), 10)
    assert ctl(trusted[0], "drain", "--node", "b", "--stay", "--seconds", "5").exit_code == exits.OK
    assert trusted[1].status()["drain"]["state"] == "drained"
    assert trusted[0].status()["drain"]["state"] == "no"
    for other in trusted.daemons:
        other.stop()
    anybody = make_cluster(2)
    result = ctl(anybody[0], "--node", "b", "drain")
    assert result.exit_code == exits.FAILED
    assert "not steered by peers that are not authenticated" in result.output
    assert document(anybody[0], "--node", "b", "ring")["nodes"]


def test_reload_applies_live_keys_and_lists_restart_keys(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    file = tmp_path / "p.toml"
    file.write_text("max_masters = 3\n")
    cluster = make_cluster(1, config=str(file))
    file.write_text('max_masters = 5\nlog_level = "debug"\npublish_timeout_ms = 50\n')
    assert document(cluster[0], "reload") == {
        "changed": ["publish_timeout_ms", "log_level"],
        "needs_restart": ["max_masters"],
        "problems": [],
    }
    settings = document(cluster[0], "config")
    assert settings["max_masters"]["value"] == 3  # type: ignore[index]
    assert settings["log_level"] == {"value": "debug", "source": f"file {file}:2", "live": True}
    assert "New values of max_masters" in ctl(cluster[0], "status").output
    file.write_text("max_masters = no\n")
    assert ctl(cluster[0], "reload").exit_code == exits.FAILED
    assert "was not reloaded" in ctl(cluster[0], "status").output
