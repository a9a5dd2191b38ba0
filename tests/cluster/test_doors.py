"""An engine's user has one door, the workers' socket: real daemons and engines of other users."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner
from harness.clock import seconds
from harness.cluster import Cluster
from harness.fixtures import MakeCluster
from harness.waiting import eventually

from peercached.cli.ctl import main
from peercached.config.cluster_secret import ClusterSecret, write_secret

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be other users")

# As in the image: the daemon's user and group, and the group of the workers.
DAEMON, WORKERS, ENGINE = 64200, 64201, 12345
# These users may have no access to the folder of the code. So the daemon has a capability for it,
# and the engine imports everything before it drops its rights.
_AS_DAEMON = [
    *("setpriv", f"--reuid={DAEMON}", f"--regid={DAEMON}", f"--groups={WORKERS}"),
    *("--inh-caps=-all,+dac_override", "--ambient-caps=-all,+dac_override"),
]
_ENGINE = """
import json, os, socket, sys
from peercache_client import Client
uid, groups, path, admin, secret = json.loads(sys.argv[1])
os.setgroups(groups)
os.setgid(uid)
os.setuid(uid)

def refused(call):
    try:
        call()
    except PermissionError:
        return True
    return False

def connect(path):
    with socket.socket(socket.AF_UNIX) as one:
        one.connect(path)

client = Client(path, namespace="n", timeout_s=float(sys.argv[2]))
page = b"x" * 4096
print(json.dumps({
    "socket": not refused(lambda: connect(path)),
    "works": bool(client.set(b"k", page)) and client.get(b"k", len(page)) == page,
    "admin": not refused(lambda: connect(admin)),
    "admin folder": not refused(lambda: os.listdir(os.path.dirname(admin))),
    "secret": not refused(lambda: open(secret)),
}), flush=True)
sys.stdin.read()
"""
DOORS = ("socket", "works", "admin", "admin folder", "secret")


@contextmanager
def engine(nodes: Cluster, *groups: int, user: int = ENGINE) -> Iterator[dict[str, bool]]:
    """A worker's process of another user: the doors that it found open. It stays attached."""
    paths = [nodes[0].socket_path, nodes[0].admin_path, secret_of(nodes)]
    about = [user, groups, *map(str, paths)]
    with subprocess.Popen(
        [sys.executable, "-c", _ENGINE, json.dumps(about), str(seconds(10))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())
        process.stdin.close()


@pytest.fixture
def nodes(make_cluster: MakeCluster) -> Cluster:
    """One daemon of a user of its own, which is in the group of the workers."""
    made = make_cluster(1, start=False, socket_group=str(WORKERS))
    secret = secret_of(made)
    write_secret(secret, ClusterSecret(b"the secret of the cluster"))
    for path in (made.folder, secret):
        os.chown(path, DAEMON, DAEMON)
    made.folder.chmod(0o755)
    made[0].options["cluster-secret-file"] = str(secret)
    made[0].launcher = _AS_DAEMON
    made[0].start()
    made[0].wait_ready(30)
    return made


def secret_of(nodes: Cluster) -> Path:
    return nodes.folder / "cluster.secret"


def test_an_engine_attaches_and_is_neither_operator_nor_member(nodes: Cluster) -> None:
    with engine(nodes, WORKERS) as found:
        assert found == {door: door in ("socket", "works") for door in DOORS}
    with engine(nodes, user=ENGINE + 1) as found:
        assert not any(found.values()), "a stranger"
    folder, socket = nodes[0].admin_path.parent.stat(), nodes[0].admin_path.stat()
    assert (folder.st_mode & 0o777, folder.st_uid) == (0o700, DAEMON)
    assert (socket.st_mode & 0o777, socket.st_uid) == (0o600, DAEMON)
    assert "private_file_open" not in nodes[0].codes()


def test_doctor_finds_engines_that_may_do_more(
    nodes: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = secret_of(nodes)
    monkeypatch.setenv("PEERCACHED_CLUSTER_SECRET_FILE", str(secret))
    options = ["--admin-socket", str(nodes[0].admin_path), "doctor", "--json"]

    def found() -> str:
        findings = json.loads(CliRunner().invoke(main, options).output)["findings"]
        return "\n".join(f"{one['text']} {one['remedy']}" for one in findings)

    with engine(nodes, WORKERS):
        eventually(lambda: nodes[0].status()["workers"])
        assert "the worker" not in found()
    # The old way: one group for the daemon, its secret and the engines.
    secret.chmod(0o640)
    with engine(nodes, WORKERS, DAEMON) as old:
        assert old["secret"]
        eventually(lambda: f"has the group {DAEMON}" in found())
        assert "Run it as another user, in the group peercached-workers alone" in found()
    with engine(nodes, WORKERS, user=DAEMON) as same:
        assert same["admin"]
        eventually(lambda: "runs as the daemon's user" in found())
    os.chown(secret, DAEMON, WORKERS)
    eventually(lambda: "private_file_open" in nodes[0].codes())
    assert f"cluster_secret_file can be read by the workers, through the group {WORKERS}" in found()
    secret.chmod(0o600)
    eventually(lambda: "private_file_open" not in nodes[0].codes())
