"""A program's log handler that blocks, such as a pipe that nobody reads, holds up no call."""

import logging
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.clock import now_s, seconds
from harness.waiting import eventually

import peercache_client
from peercache_client import Client, notes

PIPE = """
import fcntl, logging, os, sys
from peercache_client import Client
reader, writer = os.pipe()
os.set_blocking(writer, False)
os.write(writer, bytes(fcntl.fcntl(writer, fcntl.F_GETPIPE_SZ)))  # it is full
os.set_blocking(writer, True)
"""
HANDLER = "logging.basicConfig(stream=os.fdopen(writer, 'w'))\n"
STDERR = "os.dup2(writer, 2)\n"
CALLS = """
client = Client("/nonexistent.sock", "space", timeout_s=5)
assert not client.set("k", b"page")  # and says that the daemon is away
"""
FORKS = """
child = os.fork()
if child == 0:
    for log in (writer, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), log)
    assert not client.set("k", b"page")
    client.close()
    from peercache_client import notes
    os._exit(0 if any(notes.flush() for _ in range(20)) else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""


class Blocking(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.goes_on = threading.Event()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.goes_on.wait()
        self.lines.append(self.format(record))


@pytest.fixture
def blocking() -> Iterator[Blocking]:
    handler = Blocking()
    logging.getLogger("peercache_client").addHandler(handler)
    yield handler
    handler.goes_on.set()
    notes.flush()
    logging.getLogger("peercache_client").removeHandler(handler)


def test_a_log_that_blocks_holds_up_no_call(tmp_path: Path, blocking: Blocking) -> None:
    began = now_s()
    client = Client(tmp_path / "nobody.sock", "space", timeout_s=seconds(10), staging_bytes=4096)
    assert not client.set("k", b"page")  # says that there is no daemon
    assert client.get("k", 5000) is None  # says that staging_bytes is too small
    assert client.batch_exists(["k"]) == 0
    assert not client.remove(["k"])[0]
    client.close()
    assert now_s() - began < seconds(5)
    blocking.goes_on.set()
    eventually(lambda: "staging_bytes (4096)" in "".join(blocking.lines))


def test_messages_that_did_not_fit_are_counted_and_told_later(blocking: Blocking) -> None:
    for number in range(2 * notes.MESSAGES_MAX):
        notes.say(logging.WARNING, "message %d", number)
    blocking.goes_on.set()

    def is_whole() -> bool:
        told = re.findall(r"(\d+) messages are missing here", "\n".join(blocking.lines))
        said = sum(line.startswith("message ") for line in blocking.lines)
        return said + sum(map(int, told)) == 2 * notes.MESSAGES_MAX and bool(told)

    eventually(is_whole)


def test_a_message_comes_with_the_traceback_of_its_call(blocking: Blocking) -> None:
    blocking.goes_on.set()
    try:
        raise ValueError("wrong")
    except ValueError as error:
        notes.say(logging.ERROR, "%s", error, trace=True)
    assert notes.flush()
    assert blocking.lines[0].startswith("wrong\nTraceback")
    assert blocking.lines[0].endswith("ValueError: wrong")


def test_a_process_whose_log_blocks_forks_and_ends() -> None:
    for log in (HANDLER, STDERR):
        for more in ("", FORKS):
            done = run(PIPE + log + CALLS + more)
            assert (done.returncode, done.stderr) == (0, b""), (log, more)
    flushed = "assert any(notes.flush() for _ in range(20))"
    program = "from peercache_client import Client, notes" + CALLS + flushed
    assert b"misses" in run(program).stderr, "not blocked"


def run(program: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-c", program],
        stderr=subprocess.PIPE,
        timeout=seconds(20),
        check=False,
    )


def test_only_one_file_uses_the_programs_log() -> None:
    """Every other file says its messages through `notes.say`, which never blocks."""
    folder = Path(peercache_client.__file__).parent
    users = [file.name for file in folder.rglob("*.py") if "getLogger" in file.read_text()]
    assert users == ["notes.py"]
