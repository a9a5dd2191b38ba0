"""peercachectl against a daemon of a test."""

from __future__ import annotations

import subprocess

from click.testing import CliRunner, Result

from harness import nursery
from harness.cluster import Daemon
from peercached.cli.ctl import main


def ctl(daemon: Daemon, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["--socket", str(daemon.socket_path), *arguments])


def ctl_process(daemon: Daemon, *words: str) -> subprocess.CompletedProcess[str]:
    """Runs it as a process of its own, at the admin socket."""
    return nursery.run("peercached.cli.ctl", "--admin-socket", str(daemon.admin_path), *words)
