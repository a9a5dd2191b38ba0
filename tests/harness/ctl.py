"""peercachectl against a daemon of a test."""

from __future__ import annotations

import subprocess
import sys

from click.testing import CliRunner, Result

from harness.cluster import Daemon
from peercached.cli.ctl import main


def ctl(daemon: Daemon, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["--socket", str(daemon.socket_path), *arguments])


def ctl_process(daemon: Daemon, *words: str) -> subprocess.CompletedProcess[str]:
    """Runs it as a process of its own, at the admin socket."""
    command = [sys.executable, "-m", "peercached.cli.ctl", "--admin-socket"]
    return subprocess.run(
        [*command, str(daemon.admin_path), *words], capture_output=True, text=True, check=False
    )
