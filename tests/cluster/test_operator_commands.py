"""Every peercachectl command against a live cluster, and against dead or incompatible daemons."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from click.testing import CliRunner
from harness.background import Background
from harness.clock import seconds
from harness.cluster import Cluster
from harness.ctl import ctl
from harness.fixtures import FAST, MakeCluster, cluster_maker
from harness.pages import keys_of
from harness.secret_file import secret_file
from harness.waiting import eventually

from peercached import __version__
from peercached.cli import exits
from peercached.cli.ctl import main

KEYS = keys_of("page", 20)
KEY = KEYS[0].decode()
SECRET = b"cluster secret that no bundle has"


@pytest.fixture(autouse=True)
def _no_variables_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("PEERCACHED_")]:
        monkeypatch.delenv(name)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    secret = secret_file(tmp_path_factory.mktemp("site"), SECRET)
    with ExitStack() as stack:
        make = cluster_maker(stack, {**FAST, "member-ttl-s": 10}, 60.0)
        yield make(3, cluster_secret_file=secret)


@pytest.fixture
def nodes(cluster: Cluster) -> Cluster:
    """The cluster, with KEYS at b."""
    assert all(cluster[1].attach().set(KEYS))
    return cluster


def test_every_command_has_an_answer_for_scripts(nodes: Cluster, tmp_path: Path) -> None:
    """Runs each command with arguments, in this order, because the last ones remove pages."""
    page = tmp_path / "page"
    page.write_bytes(b"x" * 4096)
    trace = tmp_path / "trace.jsonl"
    trace.write_text('{"hash_ids": [1, 2, 3]}')
    model, test = ("--model", "llama-3.1-8b"), ("-n", "test")
    commands: dict[str, tuple[str, ...]] = {
        "status": (), "nodes": (), "ring": (), "workers": (), "config": (), "reload": (),
        "process": (),
        "size": (*model, "--context", "8192", "--users", "100"),
        "simulate": (str(trace), "--pool", "1GiB", *model),
        "namespaces": (), "wait": ("--healthy", "--nodes", "3"),
        "top": ("--count", "1", "--interval", "0.2"),
        "locate": (KEY, *test), "trace": (KEY, *test), "exists": (KEY, *test),
        "get": (KEY, "-o", str(tmp_path / "got"), *test), "put": ("k", str(page), *test),
        "sglang-config": (), "vllm-config": (), "lmcache-config": (), "devices": (), "doctor": (),
        "completion": ("bash",),
        "certs": (str(tmp_path / "certs"), "a=127.0.0.1"),
        "secret": ("new", str(tmp_path / "secret")),
        "support-bundle": ("-o", str(tmp_path / "bundle.tar.gz")),
        "pin": ("k", "--for", "1m", *test), "pages": ("--pinned",), "unpin": ("k", *test),
        "hints": (), "router-token": (str(tmp_path / "secret"),),
        "evict": ("k", *test), "move": ("k", "--to", nodes[0].node_id, *test),
        "drain": ("--stay", "--seconds", "5"), "undrain": (),
        "remove": (KEY, *test), "clear": (*test, "--yes"),
    }  # fmt: skip
    # `forget` needs a dead node (test_removals_hold.py), `kv-events` a port (test_kv_events.py).
    # `events` has a document per line.
    assert set(commands) | {"forget", "kv-events", "events"} == set(main.table)
    # These check this host, which may lack RDMA.
    judging = {"devices": {0, 4, 5}, "doctor": {0, 1, 2}, "move": {exits.ABSENT}}  # evicted before
    for name, arguments in commands.items():
        result = ctl(nodes[1], name, *arguments, "--json")
        assert result.exit_code in judging.get(name, {exits.OK}), (name, result.output)
        if result.exit_code == exits.NO_PYVERBS and name == "devices":
            assert "pyverbs is not installed" in result.output + result.stderr
            continue
        json.loads(result.stdout)


def test_status_of_all_nodes_has_a_line_for_each(nodes: Cluster) -> None:
    lines = ctl(nodes[0], "status", "--all").output.splitlines()
    assert [line.split()[0] for line in lines[-3:]] == ["a", "b", "c"]
    assert all("good" in line for line in lines[-3:]), lines
    document = json.loads(ctl(nodes[2], "status", "--all", "--json").output)
    assert [(name, one["node"]["id"]) for name, one in document.items()] == [
        (name, name) for name in "abc"
    ]
    assert ctl(nodes[0], "status", "--all", "--exit-code").exit_code == 0


def test_top_reports_get_traffic_of_local_and_named_nodes(nodes: Cluster) -> None:
    reader = nodes[0].attach()
    with Background(lambda: reader.get(KEYS)) as reads:
        reads.wait_rounds(1)
        result = ctl(nodes[0], "top", "--json", "--count", "2", "--interval", "0.5")
        lines = [json.loads(line) for line in result.output.splitlines()]
        seen = ctl(nodes[0], "top", "--count", "1", "--interval", "0.5").output
        far = ctl(nodes[2], "--node", "a", "top", "--json", "--count", "1", "--interval", "0.5")
    assert [line["node"] for line in lines] == ["a", "a"]
    assert all(line["get_pages"] > 0 for line in [*lines, json.loads(far.output)]), lines
    assert "3 nodes" in seen


def test_a_bundle_has_the_live_cluster_and_none_of_its_secrets(
    nodes: Cluster, tmp_path: Path
) -> None:
    file = tmp_path / "bundle.tar.gz"
    log = str(nodes[1].log_path)
    result = ctl(nodes[0], "--node", "b", "support-bundle", "-o", str(file), "--log", log)
    assert result.exit_code == exits.OK, result.output
    with tarfile.open(file) as archive:
        parts = {
            Path(member.name).name: archive.extractfile(member).read()  # type: ignore[union-attr]
            for member in archive
        }
    status = json.loads(parts["status.json"])
    assert status["node"]["id"] == "b"
    assert [m["node_id"] for m in status["membership"]["members"]] == ["a", "b", "c"]
    assert json.loads(parts["ring.json"])["nodes"]
    assert "cluster_secret_file" in json.loads(parts["config.json"])["settings"]
    assert b"view" in parts["log.txt"]
    for name, content in parts.items():
        assert SECRET not in content, name
        assert SECRET.hex().encode() not in content, name


# The process drops its rights itself, because another user may have no access to this folder.
_AS_NOBODY = """
import os, pathlib, sys
from peercached.cli.ctl import main
from peercache_client import socket_path
main.load_all()  # that user may not be allowed to read the modules
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
if sys.argv[1] == "--default":
    socket_path.SYSTEM_FOLDER = pathlib.Path(sys.argv[2])
    sys.argv[1:3] = []
main([*sys.argv[1:], "status"])
"""


def told_to_nobody(*arguments: str) -> str:
    """The error message that another user gets when asking for the status."""
    done = subprocess.run(
        [sys.executable, "-c", _AS_NOBODY, *arguments],
        capture_output=True,
        text=True,
        timeout=seconds(60),
        check=False,
    )
    assert done.returncode == exits.UNREACHABLE, done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be another user")
def test_unprivileged_user_is_told_how_to_open_the_admin_socket(nodes: Cluster) -> None:
    nodes.folder.chmod(0o755)
    told = told_to_nobody("--socket", str(nodes[0].socket_path))
    assert f"you may not open the admin socket {nodes[0].admin_path}" in told
    assert "only root and root may" in told  # the daemon's user is root, too


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be another user")
def test_unprivileged_user_is_told_the_socket_folder_is_closed() -> None:
    """As installed: an engine may open the folder of the workers' socket only."""
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "run").mkdir()
        closed = Path(name) / "run-admin"
        closed.mkdir(mode=0o700)
        os.chown(closed, 12345, 12345)
        Path(name).chmod(0o755)
        told = told_to_nobody("--default", f"{name}/run")
        assert f"you may not open the admin socket {closed}/peercached.sock" in told
        assert "only root and 12345 may (sudo -u 12345)" in told


def test_dead_daemon_and_missing_admin_socket_give_different_errors(
    make_cluster: MakeCluster,
) -> None:
    nodes = make_cluster(1)
    nodes[0].kill()
    result = ctl(nodes[0], "status")
    assert result.exit_code == exits.UNREACHABLE
    assert "nobody listens at the admin socket" in result.output
    missing = CliRunner().invoke(main, ["--socket", str(nodes.folder / "none.sock"), "status"])
    assert missing.exit_code == exits.UNREACHABLE
    assert "there is no admin socket at" in missing.output


# A daemon of a later version, whose status this peercachectl may misread.
_LATER = """
import runpy, sys
import peercached
peercached.__version__ = "99.0.0"
import peercached.admin.calls as calls
its_own = calls._found
async def found(*asked, **fields):
    return {**await its_own(*asked, **fields), "schema_version": 99}
calls._found = found
sys.argv = sys.argv[3:]
runpy.run_module("peercache_bench.process", run_name="__main__", alter_sys=True)
"""


def test_a_daemon_of_a_later_version_is_named_with_both(make_cluster: MakeCluster) -> None:
    nodes = make_cluster(1, start=False)
    nodes[0].launcher = [sys.executable, "-c", _LATER]
    nodes[0].start()
    eventually(lambda: ctl(nodes[0], "status").exit_code != exits.UNREACHABLE, 20)
    result = ctl(nodes[0], "status")
    assert result.exit_code == exits.FAILED, result.output
    assert f"is of another version (99.0.0) than this peercachectl {__version__}" in result.output
    assert "use the peercachectl that was installed with the daemon" in result.output
