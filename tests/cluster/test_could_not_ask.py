"""`could not ask` is never told as `no`: exit codes of commands about a daemon that hangs."""

import subprocess
import sys
from pathlib import Path

import pytest
from harness.cluster import Daemon
from harness.fixtures import Attach, MakeCluster
from harness.pages import keys_of

from peercached.cli import exits

KEYS = keys_of("page", 2)
KEY = KEYS[0].decode()


def ctl(daemon: Daemon, *words: str, output: Path | None = None) -> tuple[int, str, str]:
    command = [sys.executable, "-m", "peercached.cli.ctl", "--timeout", "1"]
    command += ["--socket", str(daemon.socket_path), "--admin-socket", str(daemon.admin_path)]
    with (output or Path("/dev/null")).open("w") as out:
        done = subprocess.run(
            [*command, *words],
            stdout=out if output else subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    return done.returncode, done.stdout or "", done.stderr


def test_commands_tell_a_hung_daemon_from_an_absent_page(
    make_cluster: MakeCluster, attach: Attach
) -> None:
    (daemon,) = make_cluster(1).daemons
    assert all(attach(daemon).set(KEYS, [64] * 2))
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


@pytest.mark.parametrize("words", [("exists", KEY), ("status",), ("status", "--json"), ("nodes",)])
def test_output_on_a_full_disk_is_one_sentence(make_cluster: MakeCluster, words: list[str]) -> None:
    (daemon,) = make_cluster(1).daemons
    code, _, said = ctl(daemon, *words, output=Path("/dev/full"))
    assert (code, said) == (
        exits.FAILED,
        "peercachectl: standard output: No space left on device\n",
    )
