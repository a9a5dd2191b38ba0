"""Daemons of tests: the bench's, with what only tests do to them."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from harness.clock import seconds
from harness.pages import Pages
from peercache_bench import daemons
from peercache_bench.daemons import Options, Spawn, exec_command, wait_until
from peercached.admin.client import AdminClient

# Of the running test, which closes them (fixtures.py).
WORKERS = ExitStack()


class Daemon(daemons.Daemon):
    """One `peercached` process. Not thread safe."""

    def __init__(self, folder: Path, **placed: Any) -> None:
        super().__init__(folder, **placed)
        self.launcher: list[str] = []
        """A command prefix that runs the daemon elsewhere, such as in a network namespace."""

    def attach(self, **options: Any) -> Pages:
        """The pages of a new worker. `timeout_s` is in seconds of the reference machine."""
        if "timeout_s" in options:
            options["timeout_s"] = seconds(options["timeout_s"])
        return WORKERS.enter_context(Pages(self.socket_path, **options))

    @property
    def address(self) -> str:
        """host:port of its gRPC port, as other daemons name it in discovery_addr."""
        return f"{self.host}:{self.meta_port}"

    def metrics_address(self) -> str:
        """host:port of its metrics port."""
        node = self.status()["node"]
        return f"{node['metrics_host']}:{node['metrics_port']}"

    def sentences(self) -> str:
        """All that its health report says."""
        return "\n".join(finding["sentence"] for finding in self.status()["health"])

    def codes(self) -> set[str]:
        """The codes of its findings."""
        return {finding["code"] for finding in self.status()["health"]}

    def members(self) -> list[str]:
        """The node ids of its view, in order."""
        return [member["node_id"] for member in self.status()["membership"]["members"]]

    def view(self) -> tuple[int, str]:
        """The number and the mark of its view."""
        found = self.status()["membership"]
        return found["view_number"], found["view_mark"]

    def suspects(self) -> list[str]:
        members = self.status()["membership"]["members"]
        return [member["node_id"] for member in members if member["suspect"]]

    def drain(
        self, *, stay: bool, bytes_max: int = 1 << 40, seconds_max: float = 60
    ) -> dict[str, Any]:
        """Drains it, waits for the end, and returns `drain` of the status document."""
        with AdminClient(str(self.admin_path)) as admin:
            admin.drain(bytes_max, seconds_max, stay)
        final = "drained" if stay else "left"
        wait_until(
            lambda: self.status()["drain"]["state"] == final,
            (seconds_max + 30) * self.patience,
            f"the drain of {self.node_id}",
        )
        found: dict[str, Any] = self.status()["drain"]
        return found

    def command(self) -> list[str]:
        return [*self.launcher, *super().command()]

    def stop(self, timeout_s: float = 10.0) -> int:
        """Asks it to end, and returns its exit code."""
        self._signal(signal.SIGTERM)
        return self.wait_exit(timeout_s)

    def freeze(self) -> None:
        """Sends SIGSTOP, and waits until every thread has stopped, because the signal is
        asynchronous."""
        self._signal(signal.SIGSTOP)
        wait_until(
            self._all_threads_stopped, 10.0 * self.patience, f"daemon {self.node_id} to stop"
        )

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def lose_removal_state(self) -> None:
        """Deletes what its next start would know of removals and other nodes' starts."""
        for file in self.state_dir.glob(f"removals-{self.node_id}.*"):
            file.unlink()

    def _all_threads_stopped(self) -> bool:
        threads = Path(f"/proc/{self.pid}/task").glob("*/stat")
        # The line is "pid (command) state ...", and the command may contain parentheses.
        return all(thread.read_text().rpartition(")")[2].split()[0] == "T" for thread in threads)


class Cluster(daemons.Cluster):
    daemon_type = Daemon
    daemons: Sequence[Daemon]

    def __init__(
        self,
        size: int = 3,
        *,
        options: Options | None = None,
        each: Sequence[Options] = (),
        spawn: Spawn = exec_command,
        patience: float = 1.0,
    ) -> None:
        """`each`: additional options for each daemon, in order. `patience` multiplies every
        timeout."""
        super().__init__(size, options=options or {})
        for daemon, more in zip(self.daemons, each, strict=False):
            daemon.options |= more
        for daemon in self.daemons:
            daemon.spawn, daemon.patience = spawn, patience

    def __getitem__(self, place: int) -> Daemon:
        return self.daemons[place]

    def __len__(self) -> int:
        return len(self.daemons)

    def start_again(self, daemon: Daemon) -> None:
        """Returns when all daemons are members again."""
        daemon.start()
        self.wait_complete()

    def logs(self) -> str:
        return "\n".join(daemon.log_tail() for daemon in self.daemons)


def wait_views(*daemons: Daemon) -> None:
    """Waits until these are the members in the view of each of them."""
    for daemon in daemons:
        daemon.wait_members([each.node_id for each in daemons])
