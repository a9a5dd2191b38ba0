"""The client's messages to the program's log.

A log handler may block: its pipe is full and nobody reads it. So no call into the client runs a
handler. It leaves the message in a bounded queue, and a thread hands it to the program's log. The
thread ends when the queue is empty. Callers take no lock, because `say` may interrupt them in a
signal handler.

The thread hands over a message only when the log's streams have room. If it blocked in a write, it
would hold the lock of the stream, and the interpreter takes that lock when it ends.
"""

from __future__ import annotations

import _thread
import atexit
import contextlib
import logging
import os
import select
import threading
import time
import traceback
from queue import Empty, SimpleQueue

MESSAGES_MAX = 256
FLUSH_S = 1.0  # the longest wait for the last messages when the interpreter ends

_log = logging.getLogger("peercache_client")


def say(level: int, text: str, *arguments: object, trace: bool = False) -> None:
    """Logs soon, and never raises. `trace` adds the traceback of the current exception."""
    with contextlib.suppress(Exception):
        # Formatted now: an argument such as an exception keeps frames alive, and their slots.
        record = _record(level, text % arguments)
        record.exc_text = traceback.format_exc().rstrip() if trace else None
        _messages.add(record)


def flush() -> bool:
    """Waits until all messages are logged, for FLUSH_S at most. Returns whether they are."""
    end_s = time.monotonic() + FLUSH_S
    while not _messages.are_logged():
        if time.monotonic() >= end_s:
            return False
        time.sleep(0.001)
    return True


def _record(level: int, text: str) -> logging.LogRecord:
    return _log.makeRecord(_log.name, level, __file__, 0, text, (), None, "say")


class _Messages:
    def __init__(self) -> None:
        self.start_over()

    def start_over(self) -> None:
        """For a forked child: the parent's thread logs what waits, and may have held the lock."""
        self._waiting: SimpleQueue[logging.LogRecord] = SimpleQueue()
        self._logging = threading.Lock()  # held by the one thread that calls handlers
        self._lost = 0

    def add(self, record: logging.LogRecord) -> None:
        if self._waiting.qsize() >= MESSAGES_MAX:
            self._lost += 1
        else:
            self._waiting.put(record)
        if not self._logging.locked():  # else that thread looks at the queue again
            # Not threading.Thread: a signal handler may interrupt its start(), which takes a lock.
            _thread.start_new_thread(self._run, ())

    def are_logged(self) -> bool:
        return self._waiting.empty() and not self._logging.locked()

    def _run(self) -> None:
        while not self._waiting.empty() and self._logging.acquire(blocking=False):
            try:
                self._log_all()
            finally:
                self._logging.release()

    def _log_all(self) -> None:
        with contextlib.suppress(Empty):
            while True:
                _handle(self._waiting.get_nowait())
                lost, self._lost = self._lost, 0
                if lost:
                    _handle(
                        _record(
                            logging.WARNING,
                            f"{lost} messages are missing here: the log did not take them in time",
                        )
                    )


def _handle(record: logging.LogRecord) -> None:
    with contextlib.suppress(Exception):
        if _log.isEnabledFor(record.levelno):
            _wait_for_room()
            _log.handle(record)


def _wait_for_room() -> None:
    handlers: list[logging.Handler | None] = []
    logger: logging.Logger | None = _log
    while logger is not None:
        handlers += logger.handlers
        logger = logger.parent if logger.propagate else None
    for handler in handlers or [logging.lastResort]:
        if isinstance(handler, logging.StreamHandler):
            with contextlib.suppress(Exception):  # a stream without a descriptor
                room = select.poll()
                room.register(handler.stream.fileno(), select.POLLOUT)
                room.poll()


_messages = _Messages()


def _at_exit() -> None:
    if not flush():
        # It would wait without end for the handler that blocks.
        atexit.unregister(logging.shutdown)


os.register_at_fork(after_in_child=_messages.start_over)
atexit.register(_at_exit)
