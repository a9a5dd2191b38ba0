"""A stop is bounded: parts that hang or fail are left behind, and the process ends anyway."""

import asyncio
import logging
import subprocess
import sys

import pytest
from harness.clock import seconds

from peercached.service import stopping

HANGS = """
import threading
from peercached.service.stopping import exit_after
exit_after(60)
exit_after(0.1)
threading.Event().wait()  # as a thread that hangs in a system call
"""


def test_parts_that_hang_or_fail_do_not_keep_the_others(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(stopping, "PART_S", 0.05)
    stopped = []

    async def hangs() -> None:
        await asyncio.Event().wait()

    def fails() -> None:
        raise OSError("a disk")

    async def ends() -> None:
        stopped.append("the last one")

    with caplog.at_level(logging.WARNING):
        asyncio.run(stopping.end_all([hangs, fails, ends]))
    assert stopped == ["the last one"]
    assert "gave up on" in caplog.messages[0] and "hangs after 0.05 s" in caplog.messages[0]
    assert "fails failed" in caplog.messages[1]


def test_a_process_whose_main_thread_hangs_ends_in_time() -> None:
    done = subprocess.run(
        [sys.executable, "-c", HANGS], timeout=seconds(20), capture_output=True, check=False
    )
    assert done.returncode == stopping.EXIT_UNFINISHED
    assert b"could not stop within 0.1 s" in done.stderr
