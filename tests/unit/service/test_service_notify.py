"""Messages to the service manager, checked by a fake manager on a real socket."""

from __future__ import annotations

import asyncio
import os
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from harness.clock import now_s, seconds

from peercached.service.heart import Heart
from peercached.service.notify import Notifier


@pytest.fixture
def manager() -> Iterator[socket.socket]:
    with (
        tempfile.TemporaryDirectory() as folder,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as made,
    ):
        made.bind(str(Path(folder) / "notify"))
        made.settimeout(seconds(10))
        yield made


def said(manager: socket.socket) -> list[str]:
    return manager.recv(4096).decode().split("\n")


def of(manager: socket.socket, **variables: str) -> Notifier:
    return Notifier.from_environment({"NOTIFY_SOCKET": manager.getsockname(), **variables})


def test_ready_reload_and_stop_follow_the_systemd_protocol(manager: socket.socket) -> None:
    notifier = of(manager)
    notifier.ready("Serving,\n 2 nodes.")
    assert said(manager) == ["READY=1", "STATUS=Serving, 2 nodes."]
    notifier.reloading()
    reloading, since = said(manager)
    assert reloading == "RELOADING=1"
    name, _, number = since.partition("=")
    assert name == "MONOTONIC_USEC"
    assert abs(int(number) / 1e6 - time.monotonic()) < 60
    notifier.stopping(30.5)
    assert said(manager) == ["STOPPING=1", "STATUS=Stopping.", "EXTEND_TIMEOUT_USEC=30500000"]


def test_a_socket_without_a_file_is_reached() -> None:
    name = f"peercached-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(f"\0{name}")
        manager.settimeout(seconds(10))
        Notifier.from_environment({"NOTIFY_SOCKET": f"@{name}"}).alive()
        assert said(manager) == ["WATCHDOG=1"]


def test_without_a_manager_nothing_is_sent_and_nothing_raises(tmp_path: Path) -> None:
    Notifier.from_environment({}).ready("x")
    Notifier.from_environment({"NOTIFY_SOCKET": str(tmp_path / "nobody")}).ready("x")
    Notifier.from_environment({"NOTIFY_SOCKET": "vsock:2:1"}).ready("x")


def test_a_manager_that_does_not_read_holds_nobody_up(manager: socket.socket) -> None:
    notifier = of(manager)
    began = now_s()
    for _ in range(5000):
        notifier.alive()
    assert now_s() - began < seconds(10)


def test_the_watchdog_is_for_the_process_it_names(manager: socket.socket) -> None:
    assert of(manager, WATCHDOG_USEC="30000000").watchdog_s == 30.0
    assert of(manager, WATCHDOG_USEC="30000000", WATCHDOG_PID=str(os.getpid())).watchdog_s == 30.0
    assert of(manager, WATCHDOG_USEC="30000000", WATCHDOG_PID="1").watchdog_s == 0.0
    assert of(manager, WATCHDOG_USEC="nonsense").watchdog_s == 0.0
    assert Notifier.from_environment({"WATCHDOG_USEC": "30000000"}).watchdog_s == 0.0


async def test_the_heart_beats_with_the_loop_and_not_without_it(manager: socket.socket) -> None:
    heart = Heart(of(manager, WATCHDOG_USEC="300000"))
    heart.beat()
    for _ in range(3):
        await asyncio.sleep(0.1)
        assert said(manager) == ["WATCHDOG=1"]
    while True:  # drains the queued messages
        manager.setblocking(False)
        try:
            said(manager)
        except BlockingIOError:
            break
    time.sleep(0.5)  # noqa: ASYNC251 - the loop hangs
    with pytest.raises(BlockingIOError):
        said(manager)
    manager.settimeout(seconds(10))
    await asyncio.sleep(0.01)
    assert said(manager) == ["WATCHDOG=1"]
    heart.stop()


async def test_status_line_is_sent_when_it_changes_and_after_a_failure(
    manager: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("peercached.service.heart.STATUS_EVERY_S", 0.01)
    lines = iter(["one", "one", "", "two", *["two"] * 1000])

    def line() -> str:
        if found := next(lines):
            return found
        raise OSError("broken")

    heart = Heart(of(manager))
    heart.status = cast(Any, SimpleNamespace(line=line))
    heart.start()
    await asyncio.sleep(0.01)
    loop = asyncio.get_running_loop()
    manager.setblocking(False)
    assert (await loop.sock_recv(manager, 4096)).decode() == "STATUS=one"
    assert (await loop.sock_recv(manager, 4096)).decode() == "STATUS=two"
    heart.stop()
