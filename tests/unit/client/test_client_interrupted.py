"""Exceptions that arrive at any point: from signal handlers, one after the other, and from other
threads. Afterwards the next call works, nothing leaks, and no byte is written after the caller has
its exception."""

from __future__ import annotations

import ctypes
import gc
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

import pytest
from harness import ipc_stand_in as ipc
from harness.clock import now_s, seconds
from harness.ipc_stand_in import IpcStandIn
from harness.waiting import eventually

import peercache_client
from peercache_client import Client, Region, Status

PAGE = b"p" * 4096
OURS = str(Path(peercache_client.__file__).parent)


T = TypeVar("T")


class Hit(BaseException):
    """The exception that the tests inject."""


@pytest.fixture(autouse=True)
def hits_in_finalisers_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python cannot propagate an exception out of a finaliser. It calls pytest's hook, which
    imports modules, and a second Hit must not interrupt that."""
    usual = sys.unraisablehook

    def hook(unraisable: sys.UnraisableHookArgs) -> None:
        if unraisable.exc_type is not Hit:
            usual(unraisable)

    monkeypatch.setattr(sys, "unraisablehook", hook)


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def use_everything(client: Client, region: Region) -> None:
    region.view[:4] = b"page"
    client.batch_set(["a"], region, [0], 4)
    client.batch_get(["a"], region, [64], 4)
    client.set("b", PAGE)
    client.get("b", len(PAGE))
    client.batch_exists(["a", "b"])
    client.contains(["a"])
    client.stats()
    with client.alloc(8192) as other:
        client.batch_get(["a"], [other], [0], 4)
        client.batch_get_buffers(["a", "b"], [other.view[:4], bytearray(len(PAGE))])
    client.remove(["a"])


def all_is_well(client: Client, daemon: IpcStandIn, region: Region) -> None:
    gc.collect()
    region.view[:4] = b"fine"
    assert client.batch_set(["after"], region, [0], 4) == [Status.ok]
    assert client.batch_get(["after"], region, [32], 4) == [Status.ok]
    assert bytes(region.view[32:36]) == b"fine"
    assert client.set("plain", PAGE) is Status.ok
    assert client.get("plain", len(PAGE)) == PAGE
    assert client.remove(["after", "plain"]) == [Status.ok, Status.ok]
    # A region whose creation was interrupted belongs to the client until it closes.
    for other in set(client._regions) - {region}:
        other.close()
    attachment = daemon.attachments[-1]
    # Two regions remain: this one and the staging region for unshared memory.
    eventually(lambda: client.ping() and len(attachment.regions) <= 2, what="regions are gone")


class Trace:
    """Counts the lines or bytecodes (`event`: line, opcode) that the client executes. Raises Hit
    before the given ones."""

    def __init__(self, event: str, *raises_at: int) -> None:
        self.count = 0
        self._event = event
        self._raises_at = set(raises_at)

    def __call__(self, frame: FrameType, event: str, _: object) -> Any:
        if not frame.f_code.co_filename.startswith(OURS):
            return None
        frame.f_trace_opcodes = self._event == "opcode"
        if event == self._event:
            self.count += 1
            if self.count in self._raises_at:
                raise Hit
        return self

    def run(self, work: Callable[[], None]) -> int:
        """Runs `work` and returns the count."""
        sys.settrace(self)
        try:
            work()
        except Hit:
            pass
        finally:
            sys.settrace(None)
        return self.count


@pytest.mark.parametrize(
    ("event", "every"),
    [
        ("line", 11),
        pytest.param("line", 1, marks=pytest.mark.slow),
        pytest.param("opcode", 1, marks=[pytest.mark.slow, pytest.mark.timeout(1200)]),
    ],
)
def test_an_exception_anywhere_in_the_client_leaves_it_whole(
    client: Client, daemon: IpcStandIn, event: str, every: int
) -> None:
    region = client.alloc(4096)
    use_everything(client, region)
    there_are = Trace(event).run(lambda: use_everything(client, region))
    all_is_well(client, daemon, region)
    before = descriptors()
    for number in range(1, there_are + 1, every):
        Trace(event, number).run(lambda: use_everything(client, region))
        if number % 16 == 0:
            all_is_well(client, daemon, region)
    all_is_well(client, daemon, region)
    assert descriptors() <= before + 2
    assert there_are > 300, "the client's lines are not counted"


def test_a_second_exception_while_the_first_one_leaves(client: Client, daemon: IpcStandIn) -> None:
    region = client.alloc(4096)
    lines = Trace("line").run(lambda: use_everything(client, region))
    dice = random.Random(5)
    for _ in range(200):
        line = dice.randint(1, lines)
        second = line + dice.randint(1, 3)
        Trace("line", line, second).run(lambda: use_everything(client, region))
    all_is_well(client, daemon, region)


class Twice:
    """A signal handler that raises Hit the first two times of each round."""

    def __init__(self) -> None:
        self.left = 0
        self.raised = 0

    def __call__(self, *_: object) -> None:
        if self.left:
            self.left -= 1
            self.raised += 1
            raise Hit

    def interrupts(self, work: Callable[[], T]) -> T | None:
        """Runs `work`. Returns None if Hit interrupted it; the second Hit may come while this
        method returns."""
        try:
            try:
                try:
                    self.left = 2
                    return work()
                finally:
                    self.left = 0
            except Hit:
                self.left = 0
                return None
        except Hit:
            return None


@pytest.fixture
def twice() -> Iterator[Twice]:
    handler = Twice()
    gc.disable()  # exceptions in its callbacks would be swallowed
    before = [signal.signal(number, handler) for number in (signal.SIGALRM, signal.SIGUSR1)]
    yield handler
    gc.enable()
    signal.setitimer(signal.ITIMER_REAL, 0)
    for number, handled in zip((signal.SIGALRM, signal.SIGUSR1), before, strict=True):
        signal.signal(number, handled)


def test_signals_less_than_a_millisecond_apart(
    client: Client, daemon: IpcStandIn, twice: Twice
) -> None:
    """Each call gets its own answer, so it reads what it stored."""
    region = client.alloc(1 << 16)
    signal.setitimer(signal.ITIMER_REAL, 0.0003, 0.0002)
    end, number = now_s() + seconds(2), 0
    while now_s() < end or twice.raised < 100:
        number += 1
        key, word = f"k{number}", number.to_bytes(8, "little")
        region.view[:8] = word
        stored = twice.interrupts(lambda: client.batch_set([key], region, [0], 8))  # noqa: B023
        if stored == [Status.ok]:
            assert client.batch_get([key], region, [4096], 8) == [Status.ok]
            assert bytes(region.view[4096:4104]) == word
        twice.interrupts(lambda: client.set(key, PAGE))  # noqa: B023
    signal.setitimer(signal.ITIMER_REAL, 0)
    all_is_well(client, daemon, region)


def test_exceptions_from_another_thread(client: Client, daemon: IpcStandIn) -> None:
    region = client.alloc(1 << 16)
    over: list[bool] = []
    # The next exception may be thrown. Thrown too soon, it would miss the `except` clause.
    ready: list[bool] = []
    rounds = thrown_at = 0

    def work() -> None:
        """Uses only the client: an exception inside a Python lock would never release it."""
        nonlocal rounds
        caught = True
        while not over:
            try:
                while not over:
                    if caught:
                        caught = False
                        ready.append(True)
                    use_everything(client, region)
                    rounds += 1
            except Hit:
                caught = True

    def is_through() -> bool:
        """The thread caught the last exception, or a finaliser received it and Python swallowed
        it."""
        return bool(ready) or rounds >= thrown_at + 2

    thread = threading.Thread(target=work)
    thread.start()
    number, dice = ctypes.c_ulong(thread.ident or 0), random.Random(7)
    end = now_s() + seconds(2)
    while thread.is_alive() and (now_s() < end or not rounds):
        time.sleep(dice.uniform(0.0, 0.01))
        if is_through():
            ready.clear()
            thrown_at = rounds
            ctypes.pythonapi.PyThreadState_SetAsyncExc(number, ctypes.py_object(Hit))
    eventually(lambda: is_through() or not thread.is_alive())
    assert thread.is_alive(), "it has ended by an exception"
    over.append(True)
    thread.join()
    all_is_well(client, daemon, region)


def test_no_write_after_an_exception_reaches_the_caller(
    client: Client, daemon: IpcStandIn, twice: Twice
) -> None:
    """Sends two signals, the second while the client waits for the daemon's write to end."""
    region = client.alloc(4096)
    region.view[:4] = b"page"
    assert all(client.batch_set(["k"], region, [0], 4))
    daemon.hang_on, daemon.writing = {ipc.GET}, True
    ended = threading.Event()

    def signals() -> None:
        daemon.hanging.wait()
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGUSR1)
            ended.wait(seconds(0.02))
        assert not ended.is_set(), "it waits for the end of the write"
        daemon.go_on.set()

    with ThreadPoolExecutor(1) as pool:
        signalled = pool.submit(signals)
        assert twice.interrupts(lambda: client.batch_get(["k"], region, [100], 4)) is None
        ended.set()
        signalled.result()
    daemon.hang_on, daemon.writing = set(), False
    assert bytes(region.view[100:104]) == bytes(4)
    all_is_well(client, daemon, region)


CALLS: list[Callable[[Client, Region], object]] = [
    lambda client, _: client.close(),
    lambda client, _: client.ping(timeout_s=seconds(1)),
    lambda client, _: client.set("of the handler", PAGE, timeout_s=seconds(1)),
    lambda _, region: region.close(),
    lambda client, _: client.alloc(4096),
]


@pytest.mark.parametrize("call", CALLS, ids=["close", "ping", "set", "region", "alloc"])
@pytest.mark.parametrize("work", ["get", "set"])
def test_a_signal_handler_uses_the_client_in_the_middle_of_its_call(
    client: Client,
    daemon: IpcStandIn,
    call: Callable[[Client, Region], object],
    work: str,
) -> None:
    region = client.alloc(4096)
    client.ping()

    def handler(*_: object) -> None:
        daemon.hang_on = set()
        call(client, region)
        daemon.go_on.set()

    before = signal.signal(signal.SIGUSR1, handler)
    daemon.hang_on = {ipc.GET, ipc.SET}

    def once() -> None:
        if daemon.hanging.wait(seconds(10)):
            os.kill(os.getpid(), signal.SIGUSR1)

    killer = threading.Thread(target=once)
    killer.start()
    try:
        began = now_s()
        if work == "get":
            client.batch_get(["k"], region, [0], 4)
        else:
            client.set("k", PAGE)
        assert now_s() - began < seconds(9)
    finally:
        killer.join()
        signal.signal(signal.SIGUSR1, before)


def test_a_finaliser_uses_the_client_in_the_middle_of_its_call(client: Client) -> None:
    """Garbage collection runs the finaliser wherever objects are allocated."""
    region = client.alloc(4096)
    ran = 0

    class Last:
        def __init__(self) -> None:
            self.me = self

        def __del__(self) -> None:
            nonlocal ran
            ran += 1
            client.ping()
            client.alloc(4096).close()
            client.set("of the finaliser", PAGE)

    threshold = gc.get_threshold()
    gc.set_threshold(20, 2, 2)
    try:
        for i in range(50):
            Last()
            use_everything(client, region)
            client.set(str(i), PAGE)
    finally:
        gc.set_threshold(*threshold)
    assert ran


def test_kept_exception_releases_staging_memory(
    client: Client, daemon: IpcStandIn, twice: Twice
) -> None:
    client.ping()
    daemon.hang_on = {ipc.SET}
    kept: list[BaseException] = []

    def call() -> None:
        try:
            client.set("k", PAGE)
        except Hit as error:
            kept.append(error)  # this keeps all frames of the call alive

    with ThreadPoolExecutor(1) as pool:
        signalled = pool.submit(signal_when_it_hangs, daemon, os.getpid())
        twice.interrupts(call)
        signalled.result()
        daemon.hang_on = set()
        daemon.go_on.set()
        eventually(client.ping)
        assert kept
        assert pool.submit(client.set, "k", PAGE, timeout_s=seconds(10)).result() is Status.ok


def signal_when_it_hangs(daemon: IpcStandIn, pid: int) -> None:
    daemon.hanging.wait()
    os.kill(pid, signal.SIGUSR1)


def test_interrupted_alloc_leaves_no_region_at_the_daemon(
    client: Client, daemon: IpcStandIn, twice: Twice
) -> None:
    client.ping()
    other = client.alloc(4096)
    signal.setitimer(signal.ITIMER_REAL, 0.0003, 0.0002)
    end = now_s() + seconds(1)
    while now_s() < end or twice.raised < 50:
        twice.interrupts(lambda: client.alloc(4096).close())
    signal.setitimer(signal.ITIMER_REAL, 0)
    all_is_well(client, daemon, other)


EXITS = """
import logging, sys, threading
from peercache_client import Client
logging.getLogger("peercache_client").addHandler(logging.NullHandler())
client = Client(sys.argv[1], "space", timeout_s=5)
region = client.alloc(4096)
def call():
    while True:
        client.batch_get(["k"], region, [0], 4)
        client.ping()
for _ in range(4):
    threading.Thread(target=call, daemon=True).start()
assert client.ping()
"""


def test_the_interpreter_ends_while_threads_are_inside_calls(daemon: IpcStandIn) -> None:
    for _ in range(5):
        done = subprocess.run(
            [sys.executable, "-c", EXITS, str(daemon.path)],
            capture_output=True, text=True, timeout=seconds(60), check=False,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, "")
