"""Daemons as processes on loopback. They start together, and end with the block that made them."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Protocol, TypeVar

from peercache_bench.polling import pause_s
from peercache_bench.process import free_port
from peercached.admin.client import AdminClient, Refused, Unreachable

Options = Mapping[str, str | int | float]
SomeCluster = TypeVar("SomeCluster", bound="Cluster")

_LOG_TAIL_LINES = 40


def _clean_environment() -> dict[str, str]:
    """Our environment, without the user's configuration for another daemon."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PEERCACHED_")}


class Process(Protocol):
    """The part of subprocess.Popen that a Daemon needs."""

    pid: int
    returncode: int | None

    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def send_signal(self, number: int, /) -> None: ...


Spawn = Callable[[Sequence[str], IO[bytes], Mapping[str, str]], Process]
"""Starts a command with this log as its output and this environment."""


def exec_command(
    command: Sequence[str], log: IO[bytes], environment: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment
    )


class ClusterError(Exception):
    """A daemon did not do what it must. The text ends with its log."""


def wait_until(condition: Callable[[], Any], timeout_s: float, what: str) -> None:
    """Returns when `condition()` is true. After `timeout_s`, a TimeoutError that names `what`."""
    began = time.monotonic()
    while not condition():
        waited_s = time.monotonic() - began
        if waited_s > timeout_s:
            raise TimeoutError(f"waited {timeout_s:g} s in vain: {what}")
        time.sleep(pause_s(waited_s))


def _argument(name: str, value: str | int | float | bool) -> str:
    if isinstance(value, bool):
        return f"--{name}" if value else f"--no-{name}"
    return f"--{name}={value}"


class Daemon:
    """One `peercached` process. Not thread safe."""

    def __init__(
        self,
        folder: Path,
        *,
        node_id: str,
        host: str,
        heads: Sequence[str],
        meta_port: int,
        options: Options,
    ) -> None:
        """`folder` holds the log, and folders of the sockets. `heads` are host:port for
        discovery."""
        self.node_id = node_id
        self.host = host
        self.heads = list(heads)
        self.meta_port = meta_port
        self.data_port = free_port(host)
        self.socket_path = folder / "run" / f"{node_id}.sock"
        self.admin_path = folder / "run-admin" / f"{node_id}.sock"
        self.state_dir = folder
        self.log_path = folder / f"{node_id}.log"
        self.options = dict(options)
        self.spawn: Spawn = exec_command
        self.patience = 1.0
        """Multiplies every timeout."""
        self._process: Process | None = None

    @property
    def pid(self) -> int:
        return self._running().pid

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        return None if self._process is None else self._process.poll()

    def command(self) -> list[str]:
        options: dict[str, str | int | float] = {
            "node-id": self.node_id,
            "host": self.host,
            "meta-port": self.meta_port,
            "data-port": self.data_port,
            "metrics-port": 0,
            "socket-path": str(self.socket_path),
            "admin-socket": str(self.admin_path),
            "state-dir": str(self.state_dir),
            "stop-drain-s": 0,  # callers who stop a daemon want it gone at once
            **({"discovery-addr": ",".join(self.heads)} if self.heads else {}),
            **self.options,
        }
        arguments = [_argument(name, value) for name, value in options.items()]
        return [sys.executable, "-m", "peercache_bench.process", *arguments]

    # --- life ---------------------------------------------------------------------------

    def start(self) -> None:
        """Starts the process and returns at once."""
        if self.alive:
            raise RuntimeError(f"daemon {self.node_id} runs already, as process {self.pid}")
        with self.log_path.open("ab") as log:
            self._process = self.spawn(self.command(), log, _clean_environment())

    def wait_ready(self, timeout_s: float = 20.0) -> None:
        """Waits until it answers on its admin socket and accepts workers, if its role has any."""
        self._wait(self._has_sockets, timeout_s, "to be ready")

    def wait_members(self, node_ids: Sequence[str], timeout_s: float = 20.0) -> None:
        """Waits until its view has exactly these nodes, none is suspect, and all its streams are
        live."""
        wanted = sorted(node_ids)
        self._wait(lambda: self.connected_members() == wanted, timeout_s, f"to see {wanted}")

    def kill(self) -> None:
        """Sends SIGKILL, and returns when the process has ended."""
        self._signal(signal.SIGKILL)
        self.wait_exit(60.0)  # on a busy machine the kernel may take seconds

    def wait_exit(self, timeout_s: float = 10.0) -> int:
        return self._running().wait(timeout_s * self.patience)

    def clean_up(self) -> None:
        """Makes sure that the process has ended, whatever its state."""
        if self.alive:
            with contextlib.suppress(ProcessLookupError):
                self.kill()

    # --- what it says -------------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        """The status document, as `peercachectl status --json` shows it."""
        with AdminClient(str(self.admin_path), timeout_s=15.0 * self.patience) as admin:
            return admin.status().model_dump(mode="json")

    def connected_members(self) -> list[str]:
        """Node ids in its view, sorted. Empty while one is suspect or lacks our records."""
        now = self.status()
        members = now["membership"]["members"]
        usable = all(not member["suspect"] for member in members)
        in_step = all(one["state"] == "live" for one in now["followers"])
        return sorted(member["node_id"] for member in members) if usable and in_step else []

    def log_text(self) -> str:
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def log_tail(self) -> str:
        lines = self.log_text().splitlines()[-_LOG_TAIL_LINES:]
        return "\n".join([f"--- end of the log of daemon {self.node_id}:", *lines])

    def _has_sockets(self) -> bool:
        return not self.status()["node"]["socket_path"] or self.socket_path.exists()

    def _wait(self, condition: Callable[[], bool], timeout_s: float, what: str) -> None:
        def met_or_dead() -> bool:
            if not self.alive:
                code = self.exit_code
                raise ClusterError(f"daemon {self.node_id} exited ({code})\n{self.log_tail()}")
            try:
                return condition()
            except (Unreachable, Refused):
                return False

        try:
            wait_until(met_or_dead, timeout_s * self.patience, f"daemon {self.node_id} {what}")
        except TimeoutError as late:
            raise ClusterError(f"{late}\n{self.log_tail()}") from late

    def _running(self) -> Process:
        if self._process is None:
            raise RuntimeError(f"daemon {self.node_id} was not started")
        return self._process

    def _signal(self, number: signal.Signals) -> None:
        self._running().send_signal(number)


class Cluster:
    """Daemons a, b, c, ... on 127.0.0.1, .2, .3, ...; the first is the head.

    A context manager: at its end all processes have ended, and its files are deleted.
    """

    daemons: Sequence[Daemon]
    daemon_type: type[Daemon] = Daemon

    def __init__(self, size: int, *, options: Options) -> None:
        self._own_folder = tempfile.TemporaryDirectory(prefix="peercached-")
        self.folder = Path(self._own_folder.name)
        head_port = free_port("127.0.0.1")
        self.daemons = [
            self.daemon_type(
                self.folder,
                node_id=chr(ord("a") + place) if place < 26 else f"n{place}",
                host=f"127.0.0.{place + 1}",
                heads=[f"127.0.0.1:{head_port}"],
                meta_port=free_port(f"127.0.0.{place + 1}") if place else head_port,
                options=options,
            )
            for place in range(size)
        ]

    def __enter__(self: SomeCluster) -> SomeCluster:
        return self

    def __exit__(self, *_: object) -> None:
        for daemon in self.daemons:
            daemon.clean_up()
        self._own_folder.cleanup()

    def start(self, timeout_s: float = 30.0) -> None:
        """Starts all daemons, and waits until all see each other."""
        for daemon in self.daemons:
            daemon.start()
        self.wait_complete(timeout_s)

    def wait_complete(self, timeout_s: float = 30.0) -> None:
        """Waits until every live daemon sees exactly the live ones."""
        live = [daemon for daemon in self.daemons if daemon.alive]
        for daemon in live:
            daemon.wait_ready(timeout_s)
        for daemon in live:
            daemon.wait_members([other.node_id for other in live], timeout_s)
