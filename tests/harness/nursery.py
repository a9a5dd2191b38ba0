"""Starts daemons and commands by fork, so that a test does not pay for their imports.

A daemon spends 0.5 s of processor time on imports and less than 0.1 s on its own start, and the
tests start many hundreds. So one process per test run, the nursery, imports the daemon's modules
and then forks. Each child gets its own arguments, environment, standard streams and network
namespace, and runs `peercache_bench.process` or a command as its main module. From then on it is a
process like any other: kill -9, SIGSTOP and its exit code mean the same.

The nursery itself has one thread and only imports modules. It ends with the process that uses it,
and its children end with it (`die_with_parent`).

A command that a fork cannot imitate, such as one under `capsh`, starts in the usual way.
"""

from __future__ import annotations

import array
import ctypes
import gc
import json
import os
import random
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from peercache_bench.daemons import Process, exec_command

_DAEMON = "peercache_bench.process"
_IN_NETNS = ["ip", "netns", "exec"]
_REQUEST_BYTES_MAX = 1 << 20
_POLL_ERROR = "the nursery ended; its standard error says why"

# For unshare(2), setns(2), mount(2) and umount2(2).
_CLONE_NEWNS = 0x00020000
_CLONE_NEWNET = 0x40000000
_MS_REC_SLAVE = 0x4000 | 0x80000
_MS_BIND = 0x1000
_MNT_DETACH = 2


# --- the side of the tests --------------------------------------------------------------------


class Forked:
    """A child of the nursery, with the part of subprocess.Popen's interface that tests use."""

    def __init__(self, nursery: Nursery, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._nursery = nursery
        # The nursery reaps a child only on request, so no other process can have this pid yet.
        self._pidfd = os.pidfd_open(pid)

    def poll(self) -> int | None:
        if self.returncode is None and self._ended(0.0):
            self._reap()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not self._ended(timeout):
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0)
            self._reap()
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            signal.pidfd_send_signal(self._pidfd, number)

    def _ended(self, timeout_s: float | None) -> bool:
        return bool(select.select([self._pidfd], [], [], timeout_s)[0])

    def _reap(self) -> None:
        self.returncode = self._nursery.exit_code(self.pid)
        os.close(self._pidfd)


class Nursery:
    """The nursery process, as its user sees it. Thread safe."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._lock = threading.Lock()
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            subprocess.Popen(
                [sys.executable, "-m", "harness.nursery"],
                stdin=theirs.fileno(),
                env=environment,
                cwd=Path(__file__).parent.parent,
            )

    def spawn(self, request: Mapping[str, Any], out: IO[Any], error: IO[Any]) -> Forked:
        with self._lock:
            words = json.dumps(request).encode()
            streams = array.array("i", [out.fileno(), error.fileno()])
            rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, streams)
            self._socket.sendmsg([words], [rights])
            return Forked(self, self._answer())

    def exit_code(self, pid: int) -> int:
        """The exit code of a child that has ended."""
        with self._lock:
            self._socket.send(json.dumps({"reap": pid}).encode())
            return self._answer()

    def _answer(self) -> int:
        answer = self._socket.recv(_REQUEST_BYTES_MAX)
        if not answer:
            raise RuntimeError(_POLL_ERROR)
        return int(json.loads(answer))


# By our process id and what the dynamic linker reads at the start of a process.
_nurseries: dict[tuple[int, str], Nursery] = {}
_nurseries_lock = threading.Lock()


def spawn(command: Sequence[str], log: IO[bytes], environment: Mapping[str, str]) -> Process:
    """Starts a daemon for `peercache_bench.daemons.Daemon`."""
    request = _request(command, environment)
    if request is None:
        return exec_command(command, log, environment)
    return _ours(environment).spawn(request, log, log)


def run(module: str, *words: str, out: IO[Any] | None = None) -> subprocess.CompletedProcess[str]:
    """Runs `python -m MODULE WORDS...` to its end. Its output is captured, or goes to `out`."""
    with tempfile.TemporaryFile("w+") as said, tempfile.TemporaryFile("w+") as error:
        request = _fork_of(module, words, os.environ)
        code = _ours(os.environ).spawn(request, out or said, error).wait()
        for file in (said, error):
            file.seek(0)
        return subprocess.CompletedProcess([module, *words], code, said.read(), error.read())


def _ours(environment: Mapping[str, str]) -> Nursery:
    key = (os.getpid(), environment.get("LD_LIBRARY_PATH", ""))
    with _nurseries_lock:
        if key not in _nurseries:
            _nurseries[key] = Nursery(environment)
        return _nurseries[key]


def _request(command: Sequence[str], environment: Mapping[str, str]) -> dict[str, Any] | None:
    words, netns = list(command), ""
    if words[: len(_IN_NETNS)] == _IN_NETNS:
        netns, words = words[len(_IN_NETNS)], words[len(_IN_NETNS) + 1 :]
    ours = [sys.executable, "-m", _DAEMON]
    if words[: len(ours)] != ours:
        return None
    return _fork_of(_DAEMON, words[len(ours) :], environment, netns)


def _fork_of(
    module: str, arguments: Sequence[str], environment: Mapping[str, str], netns: str = ""
) -> dict[str, Any]:
    return {
        "module": module,
        "arguments": list(arguments),
        "environment": dict(environment),
        "folder": str(Path.cwd()),
        "netns": netns,
    }


# --- the nursery's side -----------------------------------------------------------------------


def _serve(ours: socket.socket) -> tuple[dict[str, Any], Sequence[int]]:
    """Returns in each child, with the request and the descriptors of its output and errors."""
    while True:
        message, ancillary, _, _ = ours.recvmsg(_REQUEST_BYTES_MAX, socket.CMSG_SPACE(8))
        if not message:
            # Not sys.exit: this process has nothing to clean up, and its children may run on until
            # the kernel signals them.
            os._exit(0)
        request = json.loads(message)
        if "reap" in request:
            answer = os.waitstatus_to_exitcode(os.waitpid(request["reap"], 0)[1])
        else:
            streams = array.array("i", ancillary[0][2])
            answer = os.fork()
            if answer == 0:
                return request, streams
            for stream in streams:
                os.close(stream)
        ours.send(json.dumps(answer).encode())


def _become(request: dict[str, Any], streams: Sequence[int]) -> None:
    """Puts this fork into the state of a freshly exec'd process."""
    with open(os.devnull) as nothing:  # noqa: PTH123
        os.dup2(nothing.fileno(), 0)
    for number, stream in enumerate(streams, start=1):
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    sys.argv = [request["module"], *request["arguments"]]
    random.seed()  # otherwise all children would draw the same numbers
    if request["netns"]:
        _enter(request["netns"])


def _enter(netns: str) -> None:
    """Does what `ip netns exec` does: enters that network, and mounts a /sys that shows it and its
    files in /etc."""
    libc = ctypes.CDLL(None, use_errno=True)

    def checked(name: str, *words: object) -> None:
        if getattr(libc, name)(*words) != 0:
            error = ctypes.get_errno()
            raise OSError(error, f"{name}: {os.strerror(error)}")

    with Path("/var/run/netns", netns).open() as namespace:
        checked("setns", namespace.fileno(), _CLONE_NEWNET)
    checked("unshare", _CLONE_NEWNS)
    checked("mount", b"", b"/", b"none", _MS_REC_SLAVE, None)
    checked("umount2", b"/sys", _MNT_DETACH)
    checked("mount", netns.encode(), b"/sys", b"sysfs", 0, None)
    for file in Path("/etc/netns", netns).glob("*"):
        checked("mount", bytes(file), bytes(Path("/etc", file.name)), b"none", _MS_BIND, None)


if __name__ == "__main__":
    import runpy

    import uvloop  # noqa: F401

    import peercached.cli.ctl
    import peercached.cli.daemon
    import peercached.run  # noqa: F401

    gc.collect()
    gc.freeze()  # the children share these pages as long as no collector touches them
    with socket.socket(fileno=os.dup(0)) as ours:
        given, its_streams = _serve(ours)
    _become(given, its_streams)
    sys.modules.pop(given["module"], None)  # it must run as the main module
    runpy.run_module(given["module"], run_name="__main__", alter_sys=True)
