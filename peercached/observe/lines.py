"""Writes lines on a thread of its own, so that a pipe which nobody reads holds up nothing else."""

from __future__ import annotations

import logging
import os
import queue
import threading
from typing import TextIO

LINES_MAX = 4096
FLUSH_S = 1.0  # the longest wait for the last lines when the process ends


class LineWriter(logging.Handler):
    """Its callers never wait for `stream`. At most LINES_MAX lines wait for it. It counts those
    that do not fit, and says how many there were once the stream takes lines again."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self.stream = stream
        self._lines: queue.Queue[str] = queue.Queue(LINES_MAX)
        self._counting = threading.Lock()
        self._lost = 0
        threading.Thread(target=self._run, name="log", daemon=True).start()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record)
        except Exception as error:  # handleError() would write to the stream
            line = f"a log line could not be formatted: {error!r}"
        try:
            self._lines.put_nowait(line + "\n")
        except queue.Full:
            with self._counting:
                self._lost += 1

    def flush(self) -> None:
        """Waits until all lines are written, for FLUSH_S at most. logging calls it at the exit."""
        done = self._lines.all_tasks_done
        with done:
            done.wait_for(lambda: not self._lines.unfinished_tasks, FLUSH_S)

    def _run(self) -> None:
        while True:
            line = self._lines.get()
            self._write(line)
            with self._counting:
                lost, self._lost = self._lost, 0
            if lost:
                self._write(
                    f"{lost} lines of the log are missing here: their reader was too slow\n"
                )
            self._lines.task_done()

    def _write(self, line: str) -> None:
        try:
            # Not through the stream: at its end, the process would wait for the stream's lock.
            fd = self.stream.fileno()
        except (OSError, ValueError):  # a stream in memory
            self.stream.write(line)
            return
        left = line.encode(errors="backslashreplace")
        try:
            while left:
                left = left[os.write(fd, left) :]
        except OSError:  # its reader is gone, or its disk is full
            with self._counting:
                self._lost += 1
