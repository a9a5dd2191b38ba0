"""`could not ask` is never told as `no`: exit codes of commands about a daemon that hangs."""

import json
import subprocess
import sys
from pathlib import Path

from harness import nursery
from harness.cluster import Daemon
from harness.directory import wait_settled
from harness.fixtures import MakeCluster
from harness.pages import keys_of

from peercache_bench.process import free_port
from peercached.cli import exits
from peercached.cli.daemon import EXIT_START_FAILED

KEYS = keys_of("page", 2)
KEY = KEYS[0].decode()


def ctl(
    daemon: Daemon, *words: str, output: Path | None = None, timeout_s: float = 1
) -> tuple[int, str, str]:
    options = ["--timeout", str(timeout_s)]
    options += ["--socket", str(daemon.socket_path), "--admin-socket", str(daemon.admin_path)]
    with (output or Path("/dev/null")).open("w") as out:
        done = nursery.run("peercached.cli.ctl", *options, *words, out=out if output else None)
    return done.returncode, done.stdout, done.stderr


def test_commands_tell_a_hung_daemon_from_an_absent_page(make_cluster: MakeCluster) -> None:
    (daemon,) = make_cluster(1).daemons
    assert all(daemon.attach().set(KEYS, [64] * 2))
    page = ("-n", "test")
    assert ctl(daemon, "exists", KEY, "none", *page)[0] == exits.ABSENT
    daemon.freeze()
    code, said, why = ctl(daemon, "exists", KEY, *page)
    assert (code, said) == (exits.UNREACHABLE, ""), why
    assert "did not answer in time" in why
    assert ctl(daemon, "get", KEY, *page)[0] == exits.UNREACHABLE
    code, said, _ = ctl(daemon, "doctor")
    assert code == 2 and "did not answer within" in said
    daemon.thaw()


def test_a_page_that_only_a_frozen_node_may_know_is_not_called_absent(
    make_cluster: MakeCluster,
) -> None:
    """Each key has one owner, and no node has copies of another's records."""
    cluster = make_cluster(3, directory_replicas=1, directory_copies=0, member_ttl_s=600)
    wait_settled(cluster.daemons)
    frozen = cluster[2].node_id
    keys = [key.decode() for key in keys_of("nowhere", 32)]

    def owner_of(key: str) -> str:
        told = json.loads(ctl(cluster[0], "locate", key, "-n", "test", "--json")[1])
        return str(told["owners"][0]["node_id"])

    theirs = next(key for key in keys if owner_of(key) == frozen)
    ours = next(key for key in keys if owner_of(key) != frozen)
    (held,) = keys_of("held", 1)
    assert all(cluster[2].attach().set([held], [64]))
    cluster[2].freeze()
    page = ("-n", "test")
    for words in (["exists"], ["get"], ["locate"], ["pin", "--for", "9s"]):
        code, said, why = ctl(cluster[0], *words, theirs, *page, timeout_s=10)
        assert code == exits.UNREACHABLE, (words, said, why)
        assert f"{frozen} did not answer" in said + why, words
        # It may have that one, too, once it has been silent for as long as a lease.
        code = ctl(cluster[0], *words, ours, *page)[0]
        assert code in (exits.ABSENT, exits.UNREACHABLE), words
    code, _, why = ctl(cluster[0], "get", held.decode(), *page, timeout_s=10)
    assert code == exits.UNREACHABLE, why
    cluster[2].thaw()


def test_output_on_a_full_disk_is_one_sentence(make_cluster: MakeCluster) -> None:
    daemon, lost = make_cluster(2, start=False).daemons
    daemon.heads, lost.heads = [], [f"127.0.0.1:{free_port('127.0.0.1')}"]
    daemon.start()
    lost.start()
    for one in (daemon, lost):
        one.wait_ready()
    for word in ("exists", "get", "locate"):  # a node without peers knows, one without a head not
        assert ctl(daemon, word, KEY)[0] == exits.ABSENT, word
        assert ctl(lost, word, KEY)[0] == exits.UNREACHABLE, word
    lost.stop()
    for words in (["exists", KEY], ["status"], ["status", "--json"], ["nodes"]):
        code, _, said = ctl(daemon, *words, output=Path("/dev/full"))
        full_disk = "peercachectl: standard output: No space left on device\n"
        assert (code, said) == (exits.FAILED, full_disk), words
    for module, program, failed, *words in (
        ("daemon", "peercached", EXIT_START_FAILED, "config"),
        ("daemon", "peercached", EXIT_START_FAILED, "config", "--json"),
        ("daemon", "peercached", EXIT_START_FAILED, "config", "--check"),
        ("daemon", "peercached", EXIT_START_FAILED, "--help"),
        ("daemon", "peercached", EXIT_START_FAILED, "--version"),
        ("ctl", "peercachectl", exits.FAILED, "--help"),
        ("ctl", "peercachectl", exits.FAILED, "exists", "--help"),
        ("ctl", "peercachectl", exits.FAILED, "completion", "bash"),
        ("ctl", "peercachectl", exits.FAILED, "size", "--help"),
        ("ctl", "peercachectl", exits.FAILED, "devices"),
    ):
        with Path("/dev/full").open("w") as full:
            done = nursery.run(f"peercached.cli.{module}", *map(str, words), out=full)
        why = f"{program}: standard output: No space left on device"
        assert done.returncode == failed, (words, done.stderr)
        assert done.stderr.splitlines()[-1] == why, words
        assert "Traceback" not in done.stderr, words


def test_an_error_that_cannot_be_told_is_not_called_absent(tmp_path: Path) -> None:
    command = f"{sys.executable} -m peercached.cli.ctl --socket {tmp_path}/none"
    for words, code in (
        (f"exists {KEY} 2>/dev/full", exits.UNREACHABLE),
        (f"exists {KEY} --bogus 2>/dev/full", 2),
        (f"get {KEY} >&-", exits.UNREACHABLE),
        (f"trace {KEY} >&- 2>&-", exits.UNREACHABLE),
        ("nodes >&-", exits.UNREACHABLE),
    ):
        line = f"set -o pipefail; {command} {words}"
        done = subprocess.run(["bash", "-c", line], stderr=subprocess.PIPE, text=True, check=False)
        assert done.returncode == code, (words, done.stderr)
        assert "Traceback" not in done.stderr, words
