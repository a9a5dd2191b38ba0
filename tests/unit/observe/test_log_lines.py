"""Logging into a pipe that nobody reads: no caller waits, and the loss is counted and told."""

import logging
import os
import re
import subprocess
import sys

import pytest
from harness.clock import seconds
from harness.waiting import eventually

from peercached.observe import lines

ENDS = """
import logging, os, sys
from peercached.observe import log
log.set_up("info", "text")
for number in range(10_000):
    logging.info("line %d", number)
"""


def test_unread_lines_are_counted_and_told_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "FLUSH_S", seconds(0.05))
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb", 0) as read, os.fdopen(writer, "w") as stream:
        handler = lines.LineWriter(stream)
        for _ in range(3 * lines.LINES_MAX):
            handler.handle(logging.makeLogRecord({"msg": "x" * 99}))
        handler.flush()  # gives up in time
        os.set_blocking(read.fileno(), False)
        seen = bytearray()

        def is_whole() -> bool:
            seen.extend(read.read(1 << 20) or b"")
            told = map(int, re.findall(rb"(\d+) lines of the log are missing here", seen))
            return seen.count(b"x" * 99 + b"\n") + sum(told) == 3 * lines.LINES_MAX

        eventually(is_whole)
        assert b"missing" in seen


def test_a_process_ends_although_nobody_reads_its_log() -> None:
    with subprocess.Popen([sys.executable, "-c", ENDS], stderr=subprocess.PIPE) as process:
        assert process.wait(seconds(30)) == 0


def test_the_last_lines_are_written_before_the_process_ends() -> None:
    done = subprocess.run(
        [sys.executable, "-c", ENDS.replace("10_000", "100")],
        capture_output=True,
        text=True,
        timeout=seconds(30),
        check=True,
    )
    assert done.stderr.endswith("line 99\n")
